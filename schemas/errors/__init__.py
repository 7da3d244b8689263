"""Errors that a user can see, each with a message and a hint.

Every error derives from `DeltamirrorError`. `ConfigError` ends a command with exit code 2, any
other error with 1. A `PartitionError` belongs to one partition and does not stop the others.
"""

from schemas.errors.base import (
    ConfigError,
    DefectError,
    DeltamirrorError,
    DifferencesFoundError,
    GroupActiveError,
    NotCaughtUpError,
    NothingToTranslateError,
    PartitionError,
    RequestRefusedError,
)
from schemas.errors.configuration import (
    ClientSettingsError,
    ConfigFileError,
    InvalidKeysError,
    InvalidPatternError,
    RefusedKeyError,
    SecretError,
    UnknownAliasError,
    UnknownFlowError,
    UnknownKeyError,
)
from schemas.errors.environment import (
    BrokerStartError,
    BrokerStopError,
    DownloadFailedError,
    JavaMissingError,
    LoginRefusedError,
    PermissionMissingError,
    SparkFailedError,
    TlsFailedError,
    UnreachableError,
    WorkerDiedError,
)
from schemas.errors.lake import (
    CommitsGoneError,
    LakeError,
    LeaseHeldError,
    NothingToReplayError,
    SegmentLostError,
    StagedFileError,
    StageIncompleteError,
    StalePlanError,
    TableDamagedError,
)
from schemas.errors.mm2 import (
    AlreadyMirroredError,
    CopiedAheadError,
    MirrorMakerRunningError,
    NothingToTakeOverError,
    RemoteTopicMissingError,
    TakeoverUnclearError,
)
from schemas.errors.source import (
    LogTruncatedError,
    RangeUnfinishedError,
    RecordsExpiredError,
    TopicDeletedError,
    TopicMissingError,
    TopicRecreatedError,
)
from schemas.errors.target import (
    BatchRejectedError,
    CommitUnknownError,
    FencedError,
    MapAmbiguousError,
    MapDiffersError,
    MapUnpairedError,
    PartitionDownError,
    ProgressAheadError,
    ProgressBehindError,
    ProgressUnknownError,
    RecordRefusedError,
    ReplayTargetError,
    TargetChangedError,
    TargetHeldBackError,
    TargetTopicError,
    TargetTruncatedError,
    ThrottledError,
)
