"""When runs start by themselves: a sensor that looks for changes, a schedule that reconciles."""

import hashlib
import json
import time
from collections.abc import Iterator

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from rag_assets.changes import partition_changed, up_to_date
from rag_assets.config import Config, load_config
from rag_assets.defs.running import REREAD_TAG
from rag_assets.errors import RagError
from rag_assets.ingest import stale_partitions
from rag_assets.pipeline.pipeline import Pipeline
from rag_assets.pipeline.progress import duration
from rag_assets.project import DataFolder
from rag_assets.source_settings import ServerSettings

JOB_NAME = "ingest"
LOOK_SECONDS = 40.0
"""A tick stops looking after this long and goes on at the next one: ticks are cut at 60 s."""
FIRST_RETRY_SECONDS = 60.0
LONGEST_RETRY_SECONDS = 3600.0
ACTIVE = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def build_job(partitions: dg.PartitionsDefinition) -> UnresolvedAssetJobDefinition:
    """All five assets of one partition in one run."""
    return dg.define_asset_job(
        JOB_NAME,
        selection=dg.AssetSelection.groups("ingest"),
        partitions_def=partitions,
        executor_def=dg.in_process_executor,
        description="Bring one partition of the index up to date.",
    )


def build_sensor(config: Config, job: UnresolvedAssetJobDefinition) -> dg.SensorDefinition:
    """Looks at one partition after the other and asks for a run where something changed."""

    @dg.sensor(
        name="source_changes",
        job=job,
        minimum_interval_seconds=config.automation.look_every_seconds,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Compares names, sizes and times with the last listing; no contents are read.",
    )
    def source_changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        current = load_config(config.path)
        keys = [partition.key for partition in current.partitions()]
        cursor = json.loads(context.cursor) if context.cursor else {}
        start = cursor.get("next", 0) % len(keys)
        looked_at = {k: at for k, at in cursor.get("looked_at", {}).items() if k in keys}
        deadline = time.monotonic() + LOOK_SECONDS
        requests, looked = [], 0
        for key in keys[start:] + keys[:start]:
            looked += 1
            if time.time() - looked_at.get(key, 0.0) < _patience(current, key):
                continue
            looked_at[key] = time.time()
            request = _request_for(context, current, key)
            if request is not None:
                requests.append(request)
            if time.monotonic() > deadline:
                break
        cursor = {"next": (start + looked) % len(keys), "looked_at": looked_at}
        reason = None if requests else f"nothing changed in {looked} of {len(keys)} partitions"
        return dg.SensorResult(requests, skip_reason=reason, cursor=json.dumps(cursor))

    return source_changes


def _patience(config: Config, key: str) -> float:
    """Seconds between two looks at a partition: a server is not asked at every tick."""
    settings = config.source(config.partition(key).source)
    if not isinstance(settings, ServerSettings):
        return 0.0
    # A tick comes a little early or late; half an interval less keeps the rhythm.
    return settings.look_every_seconds - config.automation.look_every_seconds / 2


def _request_for(
    context: dg.SensorEvaluationContext, config: Config, key: str
) -> dg.RunRequest | None:
    """A run for the partition if it changed, none is under way and the last failure is old enough.

    The run key is made of the last finished run, so the same change is asked for once, and a
    change back to earlier contents is a change like any other.
    """
    data = DataFolder(config.data_dir)
    versions = up_to_date(data, config.path)
    try:
        if not partition_changed(data, key, versions.get(key, "")):
            return None
        partition = config.partition(key)
        if not config.source(partition.source).is_folder and not stale_partitions(
            Pipeline(config), [partition], retry=False
        ):
            return None  # only the source itself can tell
    except RagError as exc:
        context.log.warning(f"partition {key}: {exc}")
        return None
    by_partition = {"dagster/partition": key}
    if context.instance.get_run_records(
        dg.RunsFilter(job_name=JOB_NAME, tags=by_partition, statuses=ACTIVE), limit=1
    ):
        return None
    records = context.instance.get_run_records(
        dg.RunsFilter(job_name=JOB_NAME, tags=by_partition), limit=10
    )
    failures = 0
    for record in records:
        if record.dagster_run.status != dg.DagsterRunStatus.FAILURE:
            break
        failures += 1
    if failures:
        wait = min(FIRST_RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS)
        if time.time() - (records[0].end_time or 0) < wait:
            context.log.info(f"partition {key}: last run failed, next try in {duration(wait)}")
            return None
    last = records[0].dagster_run.run_id if records else "first"
    run_key = hashlib.sha256(f"{key}\0{last}\0{versions.get(key, '')}".encode()).hexdigest()[:32]
    return dg.RunRequest(run_key=run_key, partition_key=key)


def build_schedule(config: Config, job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Every partition, every file read again and compared by content."""

    @dg.schedule(
        name="reconcile",
        job=job,
        cron_schedule=config.automation.reconcile_cron,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Reads every file again to find what time stamps hide; embeds only new texts.",
    )
    def reconcile(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        moment = context.scheduled_execution_time.isoformat()
        for partition in load_config(config.path).partitions():
            yield dg.RunRequest(
                run_key=f"{partition.key}@{moment}",
                partition_key=partition.key,
                tags={REREAD_TAG: "true"},
            )

    return reconcile
