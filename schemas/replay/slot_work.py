"""A slot's work in replay: progress, chain links, policies, committed batches and results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.config.flow import Flow
from schemas.errors.base import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import RecordStats
from schemas.offset_map import OffsetRun
from schemas.replay.point_in_time import ReplayFlow


@dataclass(frozen=True, slots=True)
class Progress:
    """The next upstream offset to replay, its incarnation, and the target's topic id.

    Committed to the group `deltamirror.<flow>`, in the transaction of the records.
    """

    next_offset: int
    incarnation: str
    target_topic_id: str

    @property
    def metadata(self) -> str:
        """Return the metadata of the committed offset: ASCII, under 60 bytes."""
        return f"{self.incarnation} {self.target_topic_id}"

    @classmethod
    def read(cls, next_offset: int, metadata: str) -> Progress | None:
        """Return the progress of a committed offset, or None if deltamirror did not commit it."""
        words = metadata.rstrip("\0").split(" ")
        return cls(next_offset, words[0], words[1]) if len(words) == 2 else None


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A staged range of one incarnation: a link of the chain that replay follows.

    The range holds exactly *count* records. The next link of the incarnation begins at this link's
    end.
    """

    incarnation: str
    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class MapEnd:
    """The end of a target partition's offset map; *progress* is the last progress in the map.

    *downstream_end* is the downstream offset after the last mapped record.
    """

    progress: Progress
    downstream_end: int


class MissingProgressPolicy(Enum):
    """What recovery does for a partition without progress and without a map."""

    SEARCH = "search the target's log for staged records; fail if the log does not show the end"
    SEARCH_OR_BEGIN = "search; begin if the log does not show the end: a restart was requested"
    BEGIN = "begin without a search: a point-in-time replay has a target of its own"


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """A partition to replay: its links from the expected progress on, in the order of staging."""

    partition: TopicPartition
    target: TopicPartition
    target_topic_id: str
    links: tuple[ChainLink, ...]
    map_end: MapEnd | None
    missing_progress: MissingProgressPolicy = MissingProgressPolicy.SEARCH


@dataclass(frozen=True, slots=True)
class SlotWork:
    """A slot's partitions, and the files with their records in order of sequence.

    A tick sends at most about *max_records* records and *max_bytes* bytes. A transaction holds at
    most *transaction_records* records and about *transaction_bytes* bytes.
    """

    flow: Flow | ReplayFlow
    slot: int
    partitions: tuple[PartitionWork, ...]
    files: tuple[str, ...]
    transaction_records: int
    transaction_bytes: int
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A partition's records between two progresses, committed in one transaction or paired.

    *runs* are the records' offsets. *load* is their stats, None if they were paired and not sent.
    *before* is None if the partition had no progress. A *rebuilt* batch was found by pairing, and
    the target may have deleted some of its records. Its *runs* are complete from upstream offset
    *complete_from* on; None: from the beginning.
    """

    partition: TopicPartition
    target: TopicPartition
    before: Progress | None
    after: Progress
    runs: tuple[OffsetRun, ...]
    records: int
    rebuilt: bool = False
    complete_from: int | None = None
    load: RecordStats | None = None


@dataclass(frozen=True, slots=True)
class SlotReplayResult:
    """A slot's result: committed batches in order, errors of partitions, a failure of the slot.

    *max_transaction_bytes* is the transaction size that the target's quota allows; None: no bound.
    """

    slot: int
    batches: tuple[CommittedBatch, ...]
    errors: tuple[tuple[TopicPartition, PartitionError], ...]
    failure: DeltamirrorError | None = None
    max_transaction_bytes: int | None = None
