"""Run staging, replay and map rebuild in Spark tasks: a step of `pipeline/` with real clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.replay.rebuild_map import rebuild_slot
from pipeline.replay.slot_replay import replay_slot
from pipeline.staging.stage import StageResult, StageTask, stage_ranges
from resources.delta.stage_reader import StageReader
from resources.delta.stage_writer import RecordsDirectory
from resources.kafka.range_reader import RangeReader
from resources.kafka.slot_producer import SlotProducer
from schemas.config.config import Config, FlowConfig
from schemas.errors.base import DeltamirrorError
from schemas.errors.environment import UnreachableError
from schemas.errors.target import CommitUnknownError
from schemas.replay.slot_work import SlotReplayResult, SlotWork


@dataclass(frozen=True)
class StageJob:
    """A staging task, with the cluster's client settings and the directory of `records`."""

    task: StageTask
    consumer: Mapping[str, Any] = field(repr=False)
    records: Path


class StageWorker:
    """Stage one job after the other, with a consumer that stays connected."""

    def __init__(self) -> None:
        self._reader: RangeReader | None = None

    def __call__(self, job: StageJob) -> Sequence[StageResult | DeltamirrorError]:
        """Stage the ranges of *job*; return the result or the error."""
        reader, self._reader = self._reader or RangeReader(job.consumer), None
        now_ms, begun = int(time.time() * 1000), time.process_time()
        try:
            staged = stage_ranges(job.task, reader, RecordsDirectory(job.records), now_ms)
        except DeltamirrorError as error:
            reader.close()  # it may be in the middle of a read
            return [error]
        self._reader = reader
        return [replace(staged, cpu_s=time.process_time() - begun)]


@dataclass(frozen=True)
class ReplayJob:
    """Slots to replay in one task, with the target's settings and the directory of `records`."""

    slots: tuple[SlotWork, ...]
    producer: Mapping[str, Any] = field(repr=False)
    consumer: Mapping[str, Any] = field(repr=False)
    records: Path


def assign_slots(
    works: Sequence[SlotWork], flow: FlowConfig, config: Config, records: Path
) -> dict[int, ReplayJob]:
    """Return *works* as one job for each worker, by the worker's number.

    A slot always goes to the same worker, which keeps its producer.
    """
    slots: dict[int, list[SlotWork]] = {}
    for work in works:
        slots.setdefault(work.slot % config.tasks_max, []).append(work)
    consumer = config.clusters[flow.flow.target].consumer
    return {
        number: ReplayJob(tuple(members), flow.producer, consumer, records)
        for number, members in slots.items()
    }


class ReplayWorker:
    """Replay slots, one job after the other.

    A slot's producer is kept between jobs. Its commits fail after another producer fenced it.
    """

    def __init__(self) -> None:
        self._producers: dict[int, SlotProducer] = {}

    def __call__(self, job: ReplayJob) -> Sequence[SlotReplayResult]:
        """Replay the slots of *job*."""
        staged, answers = StageReader(job.records), []
        for work in job.slots:
            target = self._producers.get(work.slot)
            if target is None:
                target = SlotProducer(work.flow, work.slot, job.producer, job.consumer)
                self._producers[work.slot] = target
            answers.append(replay_slot(work, staged, target))
            if isinstance(answers[-1].failure, UnreachableError | CommitUnknownError):
                # The other producers' connections are as old: each would wait for a timeout too.
                for target in self._producers.values():
                    target.close()
        return answers


def run_rebuild(job: ReplayJob) -> Sequence[SlotReplayResult]:
    """Rebuild the offset map of the slots of *job*; nothing is sent or written."""
    staged, answers = StageReader(job.records), []
    for work in job.slots:
        target = SlotProducer(work.flow, work.slot, job.producer, job.consumer)
        answers.append(rebuild_slot(work, staged, target))
        target.close()
    return answers
