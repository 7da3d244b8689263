"""What a Spark task does: a step of `pipeline/` on the real places. Imports no Dagster."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.rebuild import rebuild_slot
from pipeline.replay import replay_slot
from pipeline.stage import SlotStaged, StageTask, stage
from resources.producer import SlotProducer
from resources.reader import RangeReader
from resources.slot_file import RecordsFolder
from resources.staged import StagedLog
from schemas.errors import DeltamirrorError
from schemas.replay_work import SlotReplayed, SlotWork


@dataclass(frozen=True)
class StageJob:
    """A staging task, with the cluster's client settings and the table's folder."""

    task: StageTask
    consumer: Mapping[str, Any] = field(repr=False)
    records: Path


def run_stage(job: StageJob) -> Sequence[SlotStaged | DeltamirrorError]:
    """Stage the ranges of *job*; an error stands for the slots that are missing."""
    reader = RangeReader(job.consumer)
    staged: list[SlotStaged | DeltamirrorError] = []
    try:
        now_ms = int(time.time() * 1000)
        staged.extend(stage(job.task, reader, RecordsFolder(job.records), now_ms))
    except DeltamirrorError as error:
        staged.append(error)
    finally:
        reader.close()
    return staged


@dataclass(frozen=True)
class ReplayJob:
    """Slots to replay in one task, with the target's client settings and the table's folder."""

    slots: tuple[SlotWork, ...]
    producer: Mapping[str, Any] = field(repr=False)
    consumer: Mapping[str, Any] = field(repr=False)
    records: Path


def run_replay(job: ReplayJob) -> Sequence[SlotReplayed]:
    """Replay the slots of *job*."""
    return _each_slot(job, replay_slot)


def run_rebuild(job: ReplayJob) -> Sequence[SlotReplayed]:
    """Make the offset map of the slots of *job* anew; nothing is sent, and nothing written."""
    return _each_slot(job, rebuild_slot)


def _each_slot(
    job: ReplayJob, step: Callable[[SlotWork, StagedLog, SlotProducer], SlotReplayed]
) -> Sequence[SlotReplayed]:
    """Do *step* for each slot of *job*; producers are opened side by side: that is waiting."""
    staged = StagedLog(job.records)
    targets = [SlotProducer(work.flow, work.slot, job.producer, job.consumer) for work in job.slots]
    with ThreadPoolExecutor(len(targets)) as pool:
        failures = list(pool.map(_fence, targets))
    answers = []
    for work, target, failure in zip(job.slots, targets, failures, strict=True):
        if failure is None:
            answers.append(step(work, staged, target))
        else:
            answers.append(SlotReplayed(work.slot, (), (), failure))
        target.close()
    return answers


def _fence(target: SlotProducer) -> DeltamirrorError | None:
    try:
        target.fence()
    except DeltamirrorError as error:
        return error
    return None
