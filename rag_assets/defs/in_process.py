"""Runs of the ``ingest`` job in this process, on the project's Dagster instance."""

import contextlib
import copy
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster._core.instance.ref import InstanceRef
from filelock import FileLock
from sqlalchemy.exc import OperationalError

from rag_assets.config import Config
from rag_assets.defs import build_definitions
from rag_assets.defs.automation import ACTIVE, JOB_NAME
from rag_assets.defs.running import CONFIRM_TAG, FULL_TAG, PROCESS_TAG, REPROCESS_TAG
from rag_assets.defs.vector_index import WRITER_POOL
from rag_assets.errors import AssetError
from rag_assets.models import IngestRun
from rag_assets.pipeline.indexing import utc
from rag_assets.pipeline.progress import Progress, silent, watched_by
from rag_assets.project import DataFolder, process_name, process_runs

TEMPLATE_HOME = ".rag_assets/dagster"
"""Where the dagster.yaml that we ship keeps its storage."""
_ONE_AT_A_TIME = threading.Lock()
"""Dagster sets up logging anew for each run in process: two threads that do so lock each other."""
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
"""The command line shows progress itself; Dagster's own log is in its UI."""


def run_partitions(
    config: Config,
    keys: Sequence[str],
    *,
    build_id: str | None,
    reprocess: bool,
    confirm_removals: bool,
    progress: Progress | None,
) -> list[IngestRun]:
    """One run per partition, one after the other; a failed one does not stop the next.

    Raises:
        AssetError: Dagster's own storage cannot be written; what was indexed before stays.
    """
    tags = {PROCESS_TAG: process_name()}
    if build_id is not None:
        tags[FULL_TAG] = build_id
    if reprocess:
        tags[REPROCESS_TAG] = "true"
    if confirm_removals:
        tags[CONFIRM_TAG] = "true"
    try:
        with _ONE_AT_A_TIME, open_instance(config) as instance, watched_by(progress or silent):
            close_abandoned_runs(instance)
            job = build_definitions(config).resolve_job_def(JOB_NAME)
            return [_run(instance, job, key, config.partition(key).source, tags) for key in keys]
    except (OperationalError, OSError) as exc:
        problem = exc.orig if isinstance(exc, OperationalError) else exc
        raise AssetError(
            f"{dagster_home(config)}: Dagster's storage cannot be used ({problem}); free space or "
            "mend the folder's permissions, then run again"
        ) from exc


def _run(
    instance: dg.DagsterInstance,
    job: dg.JobDefinition,
    key: str,
    source: str,
    tags: Mapping[str, str],
) -> IngestRun:
    result = job.execute_in_process(
        instance=instance,
        partition_key=key,
        tags=dict(tags),
        run_config=QUIET,
        raise_on_error=False,
    )
    if not result.success:
        now = utc(time.time())
        return IngestRun(
            result.run_id, key, source, now, now, status="failed", error=_error_of(result)
        )
    events = result.asset_materializations_for_node("vector_index")
    row: Any = events[0].metadata["ingest_run"].value
    return IngestRun(**row)


def _error_of(result: dg.ExecuteInProcessResult) -> str:
    for event in result.all_events:
        if event.is_step_failure:
            data = event.step_failure_data
            if data.error and data.error.cls_name == "DagsterExecutionInterruptedError":
                raise KeyboardInterrupt
            if data.user_failure_data and data.user_failure_data.description:
                return data.user_failure_data.description
            if data.error:
                cause = data.error.cause or data.error
                return cause.message.strip()
    return "the run failed before its first step; see it in the Dagster UI"


def dagster_home(config: Config) -> Path:
    """$DAGSTER_HOME, else the configuration's folder if it has a dagster.yaml, else our own."""
    if os.environ.get("DAGSTER_HOME"):
        return Path(os.environ["DAGSTER_HOME"]).expanduser().absolute()
    if (config.path.parent / "dagster.yaml").is_file():
        return config.path.parent
    return DataFolder(config.data_dir).dagster


@contextlib.contextmanager
def open_instance(config: Config) -> Iterator[dg.DagsterInstance]:
    """The instance, created by one process only: several at once would break a fresh one."""
    home = dagster_home(config)
    home.mkdir(parents=True, exist_ok=True)
    config.data_dir.mkdir(parents=True, exist_ok=True)
    os.environ["DAGSTER_HOME"] = str(home)
    with FileLock(config.data_dir / "dagster.lock"):
        if home == DataFolder(config.data_dir).dagster and not (home / "dagster.yaml").exists():
            template = Path(__file__).parent.parent / "templates" / "dagster.yaml"
            shutil.copyfile(template, home / "dagster.yaml")
        overrides = _absolute_paths(config, home)
        instance = dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(home), overrides=overrides))
        storage = instance.event_log_storage
        if WRITER_POOL not in storage.get_concurrency_keys():
            storage.set_concurrency_slots(WRITER_POOL, 1)  # a fresh pool has no limit at first
    with instance:
        yield instance


def _absolute_paths(config: Config, home: Path) -> dict[str, Any]:
    """Relative folders of dagster.yaml are meant from where it lies, not from where we are.

    In a home of our own, ``.rag_assets/dagster`` of the template is that home.
    """
    try:
        with (home / "dagster.yaml").open(encoding="utf-8") as file:
            settings = yaml.safe_load(file) or {}
    except FileNotFoundError:
        return {}  # a home of the user's own, with Dagster's defaults
    own = home == DataFolder(config.data_dir).dagster
    found = {}
    for key in ("storage", "local_artifact_storage", "compute_logs"):
        section = copy.deepcopy(settings.get(key))
        for node in _mappings(section):
            folder = node.get("base_dir")
            if isinstance(folder, str) and not os.path.isabs(folder):
                below = os.path.relpath(folder, TEMPLATE_HOME) if own else folder
                node["base_dir"] = os.path.normpath(home / below)
                found[key] = section
    return found


def _mappings(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from _mappings(value)


def close_abandoned_runs(instance: dg.DagsterInstance) -> int:
    """Mark runs failed whose process on this host is gone, so that the UI tells the truth."""
    closed = 0
    for record in instance.get_run_records(dg.RunsFilter(statuses=ACTIVE)):
        process = record.dagster_run.tags.get(PROCESS_TAG)
        if process and process.startswith(socket.gethostname() + ":") and not process_runs(process):
            instance.report_run_failed(
                record.dagster_run, f"its process ({process}) ended without a word"
            )
            closed += 1
    return closed
