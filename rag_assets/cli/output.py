"""How commands speak: JSON or text on stdout, one clear line on stderr, an exit code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from rag_assets.errors import ConfigurationError, RagError

JSON_WANTED: Final = "rag_assets.json"
"""In the context's meta: whether ``--json`` stands on the command line."""
OK: Final = 0
FAILED: Final = 1
"""The command ran and found problems, or a run failed."""
WRONG_USE: Final = 2
"""Flags, arguments or configuration are wrong; nothing was done."""


class Output:
    """What the global options say, and where results go."""

    def __init__(self, *, config: str | None, debug: bool) -> None:
        self.config = config
        self.debug = debug
        self.json = False

    def show(self, value: Mapping[str, Any], text: Callable[[], None]) -> None:
        """The JSON object under ``--json``, else what ``text`` prints."""
        if self.json:
            sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")
        else:
            text()


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--json``: one JSON object on stdout, nothing else."""

    def remember(ctx: click.Context, _: click.Parameter, value: bool) -> None:
        ctx.find_object(Output).json = value  # type: ignore[union-attr]

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=remember,
        help="One JSON object on stdout, nothing else.",
    )(command)


def guarded(ctx: click.Context, run: Callable[[], Any]) -> Any:
    """Run a command; a ``RagError`` becomes one line on stderr, and JSON on stdout if asked for."""
    try:
        return run()
    except RagError as exc:
        if ctx.obj.debug:
            raise
        _tell(ctx, type(exc).__name__, str(exc))
        ctx.exit(WRONG_USE if isinstance(exc, ConfigurationError) else FAILED)
    except click.ClickException as exc:
        if ctx.meta.get(JSON_WANTED):
            _tell_json(type(exc).__name__, exc.format_message())
        raise
    except (click.Abort, click.exceptions.Exit):
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read has enough
        ctx.exit(OK)
    except Exception as exc:  # a person gets one line, --debug the traceback
        if ctx.obj.debug:
            raise
        what = str(exc).strip().splitlines()
        message = f"unexpected {type(exc).__name__}: {what[0] if what else ''}"
        _tell(ctx, type(exc).__name__, f"{message} (--debug shows where)")
        ctx.exit(FAILED)
    except KeyboardInterrupt:
        if ctx.meta.get(JSON_WANTED):
            _tell_json("KeyboardInterrupt", "interrupted")
        sys.stderr.write("rag-assets: interrupted; run the same command again to go on\n")
        ctx.exit(130)


def _tell_json(kind: str, message: str) -> None:
    error = {"status": "error", "error": {"type": kind, "message": message}}
    sys.stdout.write(json.dumps(error, ensure_ascii=False, indent=2) + "\n")


def _tell(ctx: click.Context, kind: str, message: str) -> None:
    if ctx.obj.json:
        _tell_json(kind, message)
    sys.stderr.write(f"rag-assets: {message}\n")


def printable(text: str) -> str:
    """Text of a document made safe for a terminal: no control characters but line ends and tabs."""
    return "".join(c if c in "\n\t" or c.isprintable() else " " for c in text)
