# Every target works as the first command on a fresh machine with python3 (3.10 to 3.13) and make.

# The interpreter the virtual environment is made from: `make test PYTHON=python3.12` names another.
PYTHON ?=
PORT ?= 3000
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Errors are shown; progress and warnings about the machine's own pip settings are not.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.DEFAULT_GOAL := help
.PHONY: help demo test check format ui clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## index the example handbook, search it, change a page
	@$(BIN)/python examples/demo.py

test: $(READY) ## run the tests (ARGS="-k name" to choose)
	@$(BIN)/python -m pytest -n auto --dist loadfile $(ARGS)

check: $(READY) ## lint, formatting and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(READY) ## put the code in shape
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

ui: $(READY) ## open Dagster's web interface on http://127.0.0.1:3000 (PORT=3001 for another)
	@DAGSTER_HOME="$(CURDIR)" PYTHONWARNINGS='ignore:Function `dev_command`' \
	  $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

clean: ## remove the index, the runs and all caches
	@rm -rf .rag_assets logs .logs_queue .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist .tmp_dagster_home_*
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment too
	@rm -rf $(VENV)

# Brought up to date when a dependency or a pinned version changes; made anew for another Python.
# The build backend is installed first, pinned: not every pip can pin an isolated build.
$(READY): pyproject.toml constraints.txt
	@supported='import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))'; \
	for python in $(or $(PYTHON),$(BIN)/python python3 python3.13 python3.12 python3.11 python3.10) none; do \
	  $$python -c "$$supported" 2>/dev/null && break; \
	done; \
	case $$python in \
	  none) echo "make: no Python 3.10 to 3.13 found; name one: make PYTHON=/path/to/python3" >&2; exit 1;; \
	  $(BIN)/python) ;; \
	  *) echo "Preparing $(VENV) with $$($$python --version) (a few minutes, once)"; \
	     $$python -m venv --clear $(VENV);; \
	esac
	@$(PIP) install -c constraints.txt hatchling editables
	@$(PIP) install -c constraints.txt --no-build-isolation -e '.[dev,fast,office]'
	@touch $@
