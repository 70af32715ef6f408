"""Every error unfork raises, as one tree whose first split says what the caller should do.

UnforkError
├── Interrupted               E001  a person or the system ended the command early
├── Reverted                  E206  a contract refused a call: an answer, kept as such
├── Retryable                 wait, then try again: nothing was changed
│   ├── SourceUnavailable     E201  an endpoint did not answer
│   ├── RateLimited           E202  an endpoint asks us to slow down
│   ├── RangeTooLarge         E203  a provider's limit: ask for less
│   ├── Unbelievable          E204  an answer failed its checks
│   ├── StateMissing          E205  no endpoint keeps the state of a block: an archive node does
│   ├── DatabaseUnavailable   E401  Postgres is away, hangs or refuses
│   ├── PartitionBusy         E402  a partition could not be attached in time, or is being read
│   ├── SparkUnavailable      E501  Spark, its cluster or its server did not start or answer
│   ├── SnapshotLost          E502  a task could not import the state its run reads
│   ├── BlockReplaced         E503  the chain no longer holds the block that is read up to
│   └── FilesRemoved          E505  files of the lake were removed while they were read
├── Misconfigured             a person must change something first
│   ├── ConfigInvalid         E101  a key or value of the configuration
│   ├── WrongChain            E102  the source serves another chain than the store holds
│   ├── StartMismatch         E103  the store already starts at another block
│   ├── SchemaOutdated        E104  migrations are pending
│   ├── MethodMissing         E105  the node lacks a method that the scope needs
│   ├── ToolMissing           E106  a program or package is not installed
│   ├── DatasetStale          E510  a job's code changed and its dataset waits for a backfill
│   ├── JobFailed             E511  a job's code failed, or took too long
│   ├── CodeNotSent           E512  a project's modules cannot get to where Spark runs its tasks
│   ├── CheckFailed           E520  rows that a job computed fail a check, and are not published
│   ├── KeyMissing            E107  a table whose changes are to be undone has no primary key
│   └── PayloadsElsewhere     E108  the payload store is another's, or not the one that was used
└── Inconsistent              stop rather than guess: the data is untouched
    ├── ForkConflict          E301  the source contradicts our floor
    ├── ForkTooDeep           E302  the fork is deeper than MAX_REORG_DEPTH
    ├── WriterBusy            E303  another process writes this chain
    ├── WriterReplaced        E304  our token or epoch is no longer the current one
    ├── ParentMismatch        E305  a batch does not continue the position
    ├── PayloadDamaged        E306  a stored payload does not hash to its name
    ├── ProofFailed           E307  stored rows contradict their block's own roots
    ├── RowRefused            E308  a value does not fit the column it belongs to
    ├── LakeUnlinked          E321  partitions of the lake whose hashes do not link
    ├── JournalPruned         E309  the journal lacks entries that a follower has still to apply
    └── StreamLost            E504  a stream stands where the journal cannot be followed any more

The docstring of a class is its default message; its fields are what one needs to act. Exit codes
are part of the stable surface and listed in docs/errors.md.
"""

from __future__ import annotations

from typing import Any, ClassVar


class UnforkError(Exception):
    """Something went wrong in unfork."""

    code: ClassVar[str] = "E000"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None, **fields: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.fields = fields
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class Interrupted(UnforkError):
    """The command was interrupted before it had an answer; run it again."""

    code = "E001"
    exit_code = 130


class Reverted(UnforkError):
    """A contract refused a call: that is its answer, and no failure of the node."""

    code = "E206"


class Retryable(UnforkError):
    """The same request may succeed later; nothing was changed."""

    code = "E200"
    exit_code = 6


class SourceUnavailable(Retryable):
    """An endpoint did not answer; check that it is up and reachable."""

    code = "E201"


class RateLimited(Retryable):
    """An endpoint asks us to slow down."""

    code = "E202"

    def __init__(
        self, message: str | None = None, *, retry_after_s: float | None = None, **fields: Any
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, **fields)
        #: Seconds the endpoint asked us to wait, or None where it did not say.
        self.retry_after_s = retry_after_s


class RangeTooLarge(Retryable):
    """A provider's limit was met; a smaller range will do."""

    code = "E203"


class Unbelievable(Retryable):
    """An answer of the node failed its checks and is not stored."""

    code = "E204"


class StateMissing(Retryable):
    """No endpoint keeps the state of a block any more; contract reads need an archive node."""

    code = "E205"


class DatabaseUnavailable(Retryable):
    """Postgres is away, hangs or refuses connections; it is asked again until it is back."""

    code = "E401"
    exit_code = 7


class PartitionBusy(Retryable):
    """A partition could not be attached within lock_timeout; it is tried again."""

    code = "E402"


class SparkUnavailable(Retryable):
    """Spark, its cluster or its server did not start or does not answer."""

    code = "E501"


class SnapshotLost(Retryable):
    """A task could not import the state of the database that its run reads; plan the run again."""

    code = "E502"


class BlockReplaced(Retryable):
    """The chain no longer holds the block up to which is read; a fork has replaced it."""

    code = "E503"


class FilesRemoved(Retryable):
    """Files of the lake were removed while they were read: it took longer than lake.read_keep_s."""

    code = "E505"


class Misconfigured(UnforkError):
    """Something must be configured differently before this can work."""

    code = "E100"
    exit_code = 2


class ConfigInvalid(Misconfigured):
    """The configuration has an unknown key or an impossible value."""

    code = "E101"


class WrongChain(Misconfigured):
    """The source serves another chain than the store holds."""

    code = "E102"


class StartMismatch(Misconfigured):
    """The store already starts at another block."""

    code = "E103"


class SchemaOutdated(Misconfigured):
    """The database lacks migrations; run `unfork migrate` first."""

    code = "E104"


class MethodMissing(Misconfigured):
    """The node lacks a method that the configured scope needs."""

    code = "E105"


class ToolMissing(Misconfigured):
    """A program or package that this command needs is not installed."""

    code = "E106"


class DatasetStale(Misconfigured):
    """A job's code or settings changed; its dataset waits for a backfill."""

    code = "E510"


class JobFailed(Misconfigured):
    """A job's own code failed, or took too long."""

    code = "E511"


class CodeNotSent(Misconfigured):
    """The modules of a project cannot get to where Spark runs its tasks."""

    code = "E512"


class CheckFailed(Misconfigured):
    """Rows that a job computed fail a check, and are not published."""

    code = "E520"


class KeyMissing(Misconfigured):
    """A table whose changes are to be undone has no primary key."""

    code = "E107"


class PayloadsElsewhere(Misconfigured):
    """The payload store is another's, or the payloads are in another one."""

    code = "E108"


class Inconsistent(UnforkError):
    """Two things that must agree do not; stopped with the data untouched."""

    code = "E300"
    exit_code = 8


class ForkConflict(Inconsistent):
    """The source contradicts a block at or below our floor."""

    code = "E301"
    exit_code = 3


class ForkTooDeep(Inconsistent):
    """The fork is deeper than MAX_REORG_DEPTH; an operator must unwind by hand."""

    code = "E302"
    exit_code = 4


class WriterBusy(Inconsistent):
    """Another process already writes this chain."""

    code = "E303"
    exit_code = 5


class WriterReplaced(Inconsistent):
    """Another writer or an operator took this chain over; our token or epoch is stale."""

    code = "E304"
    exit_code = 5


class ParentMismatch(Inconsistent):
    """The batch does not continue the position; nothing was written."""

    code = "E305"


class PayloadDamaged(Inconsistent):
    """A stored payload is missing or does not hash to its name."""

    code = "E306"


class ProofFailed(Inconsistent):
    """Stored rows contradict the roots of their own block."""

    code = "E307"


class RowRefused(Inconsistent):
    """A value does not fit the column it belongs to."""

    code = "E308"


class LakeUnlinked(Inconsistent):
    """The hashes of a partition of the lake do not link to the partition beside it."""

    code = "E321"


class JournalPruned(Inconsistent):
    """The journal lacks entries that a follower has still to apply."""

    code = "E309"


class StreamLost(Inconsistent):
    """A stream stands at a place from which the journal cannot be followed any more."""

    code = "E504"
