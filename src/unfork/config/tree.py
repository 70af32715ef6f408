"""Owns the shape of the configuration: a frozen tree, each layer with a branch of its own.

Every field has a default and a sentence; the sentence is the field's documentation everywhere
(`unfork init`, docs/configuration.md). Relations between fields are checked here, once.

A field that is left out of `repr` may hold a secret: no message ever shows its value. Building a
tree in code reads neither files nor the environment; that is the work of load.py alone.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from unfork.config.branch import (
    KEEP_S_MAX,
    NUMBER_MAX,
    PARTITION_SIZE_MAX,
    WAIT_MS_MAX,
    WAIT_S_MAX,
    Branch,
)
from unfork.config.decode import Decode
from unfork.config.jobs import Job, Planning, Schedule, Work, default_jobs
from unfork.config.lake import Lake

#: Tables whose partition size may be set; the datasets of the EVM family.
TABLES = ("blocks", "transactions", "logs", "traces", "withdrawals")


class Pool(Branch):
    """How many connections one service may hold to one database."""

    max_open_conns: int = Field(default=4, ge=1)
    """Connections open at most."""
    max_idle_conns: int = Field(default=2, ge=0)
    """Connections kept open while nobody needs them."""

    @model_validator(mode="after")
    def _idle_within_open(self) -> Pool:
        if self.max_idle_conns > self.max_open_conns:
            raise ValueError("max_idle_conns must not exceed max_open_conns")
        return self


class WorkerPool(Pool):
    """How many connections a worker may hold to one database."""

    max_open_conns: int = Field(default=12, ge=1)
    """Connections open at most."""
    max_idle_conns: int = Field(default=6, ge=0)
    """Connections kept open while nobody needs them."""


class Pools(Branch):
    """Pool sizes per service, to protect the database."""

    ingest: Pool = Pool()
    """The follower of a chain; it writes over one connection and reads over the others."""
    jobs: WorkerPool = WorkerPool()
    """A worker: it follows, plans and commits over a few, and each run holds one or two."""
    tools: Pool = Pool()
    """Commands a person runs: status, verify, repair."""


class Database(Branch):
    """Where the tables are."""

    raw_url: str | None = Field(default=None, repr=False)
    """Postgres for raw chain data (DB_RAW_URL); an embedded server under data_dir when left out."""
    app_url: str | None = Field(default=None, repr=False)
    """Postgres for everything derived (DB_APP_URL); the raw one when left out."""
    connect_timeout_s: float = Field(default=5.0, gt=0, le=WAIT_S_MAX)
    """Seconds to wait for a connection before it counts as refused."""
    statement_timeout_s: float = Field(default=60.0, gt=0, le=WAIT_S_MAX)
    """Seconds one statement may take before the database counts as hanging."""
    lock_timeout_ms: int = Field(default=500, ge=1, le=WAIT_MS_MAX)
    """Milliseconds that making or removing a partition waits for a lock before it tries again."""
    pools: Pools = Pools()
    """Pool sizes per service."""

    @field_validator("raw_url", "app_url")
    @classmethod
    def _is_postgres(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("postgresql://", "postgres://")):
            raise ValueError("must be a URL that begins with postgresql://")
        return url


class Payloads(Branch):
    """Where large values go."""

    store: str | None = Field(default=None, repr=False)
    """A folder or bucket by URL (file:, s3:, gs:); a folder under data_dir when left out."""
    inline_max_bytes: int = Field(default=8192, ge=64)
    """Values larger than this are stored once, by their SHA-256 (PAYLOAD_INLINE_MAX_BYTES)."""
    sweep_grace_s: int = Field(default=86_400, ge=0, le=KEEP_S_MAX)
    """Seconds since its last use before an unreferenced payload may be removed (SWEEP_GRACE)."""


class Scope(Branch):
    """Which part of the chain is fetched."""

    kind: Literal["all", "logs"] = "all"
    """all: whole blocks. logs: headers, and the logs that pass the filter below."""
    addresses: tuple[str, ...] = ()
    """Contracts whose logs are kept, as 0x hex; empty keeps every contract."""
    topics: tuple[str | tuple[str, ...] | None, ...] = ()
    """Topics to keep by position: a value, a list of values, or null for any."""

    @field_validator("addresses")
    @classmethod
    def _are_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for index, address in enumerate(addresses):
            if not re.fullmatch(r"0x[0-9a-fA-F]{40}", address):
                raise ValueError(f"entry {index} is not an address: 0x and 40 hex digits")
        return addresses

    @field_validator("topics", mode="before")
    @classmethod
    def _are_topics(cls, topics: Any) -> Any:
        if not isinstance(topics, list | tuple) or len(topics) > 4:
            raise ValueError("must be a list of at most 4 positions")
        for index, position in enumerate(topics):
            if position is None:
                continue
            for value in position if isinstance(position, list | tuple) else (position,):
                if not isinstance(value, str) or not re.fullmatch(r"0x[0-9a-fA-F]{64}", value):
                    raise ValueError(f"position {index} holds no topic: 0x and 64 hex digits")
        return topics

    @model_validator(mode="after")
    def _filter_has_its_kind(self) -> Scope:
        if self.kind == "all" and (self.addresses or self.topics):
            raise ValueError("addresses and topics filter only with kind: logs")
        return self


class Source(Branch):
    """How the endpoints are talked to."""

    urls: tuple[str, ...] = Field(default=(), repr=False)
    """Endpoints of the chain: http(s):// and optionally ws(s)://; the first healthy one is used."""
    poll_interval_ms: int = Field(default=1000, ge=10, le=WAIT_MS_MAX)
    """Milliseconds between two looks at the head, also where a WebSocket announces it."""
    request_timeout_s: float = Field(default=20.0, gt=0, le=WAIT_S_MAX)
    """Seconds before a request counts as unanswered."""
    concurrency: int = Field(default=8, ge=1)
    """Requests under way at once, over all endpoints."""
    batch_size: int = Field(default=20, ge=1)
    """JSON-RPC calls sent in one HTTP request; 1 for nodes that do not take batches."""
    prefetch_blocks: int = Field(default=256, ge=1)
    """Blocks fetched ahead of the commit at most; fewer where they are heavy."""
    log_range_blocks: int = Field(default=2000, ge=1)
    """Blocks asked of eth_getLogs at once; shrinks on a provider's limit and widens again."""
    attempts_max: int = Field(default=5, ge=1)
    """Tries of one request before its error is handed on."""
    backoff_ms_max: int = Field(default=10_000, ge=1, le=WAIT_MS_MAX)
    """Longest pause between two tries."""
    checks: Literal["links", "roots"] = "links"
    """links: hashes and parents must fit. roots: header hash and roots are recomputed as well."""

    @field_validator("urls")
    @classmethod
    def _are_endpoints(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        # An optional endpoint, ${NAME:-}, is empty where it is not set.
        urls = tuple(url for url in urls if url)
        for url in urls:
            if not re.match(r"(https?|wss?)://[^/]", url):
                raise ValueError("each must begin with http://, https://, ws:// or wss://")
        return urls


class Chain(Branch):
    """One chain to follow."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]{0,39}$")
    """Names the chain; its schemas are <name>_raw and <name>_app."""
    family: Literal["evm"] = "evm"
    """What kind of chain it is."""
    source: Source = Source()
    """How its endpoints are talked to."""
    start: int = Field(default=0, ge=0, le=NUMBER_MAX)
    """The first block to hold."""
    scope: Scope = Scope()
    """Which part of it is fetched."""
    traces: bool = False
    """Whether call traces are fetched (trace_block or debug_traceBlockByHash)."""
    reorg_depth_max: int = Field(default=1000, ge=1, le=NUMBER_MAX)
    """The deepest fork followed without an operator (MAX_REORG_DEPTH)."""
    finality_depth_min: int = Field(
        default_factory=lambda known: _finality_depth_min(known), ge=0, le=NUMBER_MAX
    )
    """Blocks below the head that are never final, whatever a node says; by default never deeper
    than reorg_depth_max."""
    orphan_keep_blocks: int = Field(default=10_000, ge=0, le=NUMBER_MAX)
    """Blocks below the floor for which orphaned rows are kept (ORPHAN_KEEP)."""
    batch_blocks_max: int = Field(default=200, ge=1)
    """Blocks committed at once at most."""
    batch_rows_max: int = Field(default=50_000, ge=1)
    """Rows committed at once, about; a single block may exceed it."""
    batch_bytes_max: int = Field(default=33_554_432, ge=1)
    """Bytes committed at once, about; a single block may exceed it."""
    partition_sizes: dict[str, int] = Field(default={})
    """Blocks per partition by table, where the default does not fit the chain."""

    @field_validator("name")
    @classmethod
    def _is_ours(cls, name: str) -> str:
        if name.startswith("pg_"):
            raise ValueError("names that begin with pg_ belong to Postgres; choose another")
        return name

    @field_validator("partition_sizes", mode="before")
    @classmethod
    def _sizes_are_numbers(cls, sizes: Any) -> Any:
        if isinstance(sizes, dict):
            for table, size in sizes.items():
                if isinstance(size, bool):
                    raise ValueError(f"{table} must be a number, not true or false")
        return sizes

    @field_validator("partition_sizes")
    @classmethod
    def _sizes_positive(cls, sizes: dict[str, int]) -> dict[str, int]:
        for table, size in sizes.items():
            if table not in TABLES:
                near = difflib.get_close_matches(table, TABLES, n=1)
                raise ValueError(
                    f"no table is called {table!r}; "
                    + (f"did you mean {near[0]!r}?" if near else f"there are {', '.join(TABLES)}")
                )
            if size < 1:
                raise ValueError(f"the partition size of {table} must be at least 1")
            if size > PARTITION_SIZE_MAX:
                most = f"{PARTITION_SIZE_MAX:,}"
                raise ValueError(f"the partition size of {table} must be at most {most}")
        return sizes

    @model_validator(mode="after")
    def _depths_ordered(self) -> Chain:
        if self.finality_depth_min > self.reorg_depth_max:
            raise ValueError("finality_depth_min must not exceed reorg_depth_max")
        if self.traces and self.scope.kind == "logs":
            raise ValueError("traces need whole blocks: they cannot be had with scope kind: logs")
        return self


class Sync(Branch):
    """What readers may rely on."""

    confirmations: int = Field(default=12, ge=0, le=NUMBER_MAX)
    """Blocks on top before one counts as confirmed in `unfork status` (SYNC_CONFIRMATIONS)."""
    denormalize_events: bool = False
    """Whether a transaction's row carries a cut summary of its logs in the column events
    (DENORMALIZE_EVENTS)."""


class Spark(Branch):
    """Where jobs are computed."""

    master: str = "local[*]"
    """Where Spark runs: local[*] on this machine, or a cluster's own URL (spark://, yarn, k8s://)."""
    remote: str | None = Field(default=None, repr=False)
    """A Spark Connect server (sc://host:port) to use instead of a Spark of our own."""
    conf: dict[str, str] = Field(default={}, repr=False)
    """Any other setting of Spark by its own name; stronger than what unfork sets by itself."""
    driver_memory: str = Field(default="1g", pattern=r"^[1-9][0-9]*[mg]$")
    """Memory of the driver, and of everything where Spark runs on this machine: 768m, 2g."""
    ship_code: bool = True
    """Whether code, unfork's and the project's own, is sent to executors and Connect servers; false
    where each of them has the same release, and the project, installed."""
    read_tasks: int = Field(default=4, ge=1)
    """Pieces that a large read is cut into, each with a connection of its own."""
    snapshot_max_s: int = Field(default=300, ge=1, le=WAIT_S_MAX)
    """Seconds a run may hold one state of a database for its tasks (SNAPSHOT_MAX_S)."""
    stream_keep_s: int = Field(default=604_800, ge=1, le=KEEP_S_MAX)
    """Seconds after which a registered stream that nobody reads any more keeps nothing."""

    @field_validator("remote")
    @classmethod
    def _is_connect(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith("sc://"):
            raise ValueError("must be a URL that begins with sc://")
        return url

    @field_validator("conf")
    @classmethod
    def _are_settings(cls, conf: dict[str, str]) -> dict[str, str]:
        for name in conf:
            if not name.startswith("spark."):
                raise ValueError(f"{name!r} is no setting of Spark: their names begin with spark.")
        return conf


class Maintenance(Branch):
    """What the scheduled task maintenance removes, and when."""

    retired_keep_s: int = Field(default=86_400, ge=0, le=KEEP_S_MAX)
    """Seconds after which the table of a build that is no longer served goes."""
    record_keep_s: int = Field(default=2_592_000, ge=0, le=KEEP_S_MAX)
    """Seconds for which ended runs, settled invalidations and resolved errors are kept."""


ForkStyle = Literal["kept", "dropped", "moved", "replaced", "redeployed"]
ForkLength = Literal["same", "longer", "shorter"]

FORK_STYLES: tuple[ForkStyle, ...] = get_args(ForkStyle)
FORK_LENGTHS: tuple[ForkLength, ...] = get_args(ForkLength)


class Devnet(Branch):
    """The simulated chain that runs where no source is configured."""

    seed: int = 1
    """Same seed, same chain."""
    block_time_ms: int = Field(default=100, ge=0, le=WAIT_MS_MAX)
    """Milliseconds between blocks."""
    density: int = Field(default=6, ge=0)
    """Transactions in a block, on average."""
    fork_rate: float = Field(default=0.08, ge=0, le=1)
    """Chance that a new block starts a fork instead of continuing the head."""
    fork_depth_max: int = Field(default=6, ge=1)
    """Blocks a fork replaces at most."""
    fork_styles: tuple[ForkStyle, ...] = Field(default=FORK_STYLES, min_length=1)
    """What forks do with the transactions they take: keep them, drop some, move them to other
    blocks, replace them, redeploy contracts as something else at the same address."""
    fork_lengths: tuple[ForkLength, ...] = Field(default=FORK_LENGTHS, min_length=1)
    """How high the head is after a fork, compared with before."""
    finality_lag: int = Field(default=80, ge=1)
    """Blocks between the head and the finalized block."""
    proven: bool = True
    """Whether hashes, roots and blooms are the real ones; false is faster."""
    hostile: bool = True
    """Whether awkward values are mixed in: 2^256-1, NUL bytes, huge log indexes, empty symbols."""
    pools: int = Field(default=0, ge=0, le=1000)
    """Contracts that a factory announces, with events to decode: strings, arrays, tuples; where
    awkward values are mixed in, malformed ones as well."""
    port: int = Field(default=0, ge=0, le=65_535)
    """Port of the JSON-RPC endpoint; 0 takes a free one."""


class Config(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    data_dir: str = ".unfork"
    """Folder for the embedded Postgres, payloads and logs."""
    chains: tuple[Chain, ...] = ()
    """The chains to follow; a devnet when left out."""
    database: Database = Database()
    """Where the tables are."""
    payloads: Payloads = Payloads()
    """Where large values go."""
    sync: Sync = Sync()
    """What readers may rely on."""
    jobs: tuple[Job, ...] = Field(default_factory=default_jobs)
    """What is computed from the chain; the built-in jobs when left out, [] for none."""
    decode: tuple[Decode, ...] = ()
    """Contracts whose events are decoded, each event into a dataset of its own."""
    schedules: tuple[Schedule, ...] = ()
    """What runs by the clock."""
    planning: Planning = Planning()
    """How work is cut into runs."""
    maintenance: Maintenance = Maintenance()
    """What the scheduled task maintenance removes, and when."""
    work: Work = Work()
    """How much a worker does at once."""
    spark: Spark = Spark()
    """Where jobs are computed."""
    lake: Lake = Lake()
    """Cold storage: Parquet files, in immutable versions of partitions."""
    devnet: Devnet = Devnet()
    """The simulated chain that runs where no source is configured."""

    @field_validator("chains")
    @classmethod
    def _names_unique(cls, chains: tuple[Chain, ...]) -> tuple[Chain, ...]:
        names = [chain.name for chain in chains]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"chain {name!r} is listed twice")
        return chains

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the caller hands over; load.py has merged all other layers into it."""
        return (init_settings,)


def _finality_depth_min(known: dict[str, Any]) -> int:
    """64, or the deepest fork that is followed where that is less."""
    return min(64, int(known.get("reorg_depth_max", 1000)))
