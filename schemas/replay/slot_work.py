"""How far a target partition is, as the target itself keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from schemas.config.flow import Flow
from schemas.errors import DeltamirrorError, PartitionError
from schemas.kafka.partition import TopicPartition
from schemas.monitoring.stats import RecordStats
from schemas.offset_map import OffsetRun
from schemas.replay.point_in_time import ReplayFlow


@dataclass(frozen=True, slots=True)
class Progress:
    """The next upstream offset to replay, in which incarnation, into which life of the target.

    Committed to the group `deltamirror.<flow>` in the transaction of the records themselves.
    """

    next_offset: int
    incarnation: str
    target_topic_id: str

    @property
    def metadata(self) -> str:
        """Return what is committed beside the offset: ASCII, under 60 bytes."""
        return f"{self.incarnation} {self.target_topic_id}"

    @classmethod
    def read(cls, next_offset: int, metadata: str) -> Progress | None:
        """Return the progress that a committed offset means; None: it is not one of ours."""
        words = metadata.rstrip("\0").split(" ")
        return cls(next_offset, words[0], words[1]) if len(words) == 2 else None


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A staged range of one incarnation: a link of the chain that replay follows.

    *count* records lie in it; where it *is_cut* to a part of the range, at most that many. The
    next link of the incarnation begins where this one ends.
    """

    incarnation: str
    start: int
    end: int
    count: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class MapEnd:
    """Where a target partition's offset map ends: the witness of progress.

    *downstream_end* is the target offset behind the last record mapped.
    """

    progress: Progress
    downstream_end: int


class MissingProgressPolicy(Enum):
    """What to do where neither progress nor the map says how far a partition is."""

    SEARCH = "look for the staged records in the target's log; where that cannot tell, refuse"
    SEARCH_OR_BEGIN = "look; where that cannot tell, begin: somebody ordered to start again"
    BEGIN = "begin, whatever lies there: it is a replay of its own"


@dataclass(frozen=True, slots=True)
class PartitionWork:
    """A partition to replay: links from where it is thought to be, in the order of staging."""

    partition: TopicPartition
    target: TopicPartition
    target_topic_id: str
    links: tuple[ChainLink, ...]
    map_end: MapEnd | None
    missing_progress: MissingProgressPolicy = MissingProgressPolicy.SEARCH


@dataclass(frozen=True, slots=True)
class SlotWork:
    """A slot's partitions and the files, in order, that hold their records.

    At most about *max_records* and *max_bytes* are sent before the slot reports back; a
    transaction holds at most *transaction_records* and about *transaction_bytes*.
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
    """A partition went from one progress to another, in one transaction or by pairing.

    *runs* say which offset each record got; *load* is what they weigh, None for those that were
    not sent but found by pairing. *before* is None where progress began. Of a *rebuilt*
    move the target may not hold all records any more: *runs* have them all from the upstream
    offset *complete_from* on; None: from the beginning.
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
    """What a slot did: moves in order, partitions that stopped, and why the rest did.

    *max_transaction_bytes* is what a transaction may hold at the target's quota; None: as much as
    is wished.
    """

    slot: int
    batches: tuple[CommittedBatch, ...]
    errors: tuple[tuple[TopicPartition, PartitionError], ...]
    failure: DeltamirrorError | None = None
    max_transaction_bytes: int | None = None
