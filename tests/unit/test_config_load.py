"""Goal: a configuration means what its author wrote, or is refused with the place and a way out.

Method: tables of small files, environments and flags, each with the value or the message expected.
Nothing is mocked; the environment is handed to the loader as a mapping.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from unfork.config import describe, tree
from unfork.config.load import Flag, Loaded, find, load
from unfork.datasets import evm
from unfork.errors import ConfigInvalid


def loaded(folder: Path, text: str, env: dict[str, str] | None = None, *flags: Flag) -> tree.Config:
    """The configuration of one file."""
    (folder / "unfork.yaml").write_text(text)
    return load(env=env or {}, folder=folder, flags=flags).config


def problems(folder: Path, text: str, env: dict[str, str] | None = None, *flags: Flag) -> list[str]:
    """What is wrong with one file, without the folder it lies in."""
    with pytest.raises(ConfigInvalid) as caught:
        loaded(folder, text, env, *flags)
    found: list[str] = caught.value.fields["problems"]
    assert caught.value.message == "\n".join(found)
    return [problem.replace(f"{folder}/", "") for problem in found]


def value(config: tree.Config, *path: Any) -> Any:
    """One value of the tree."""
    here: Any = config
    for key in path:
        here = here[key] if isinstance(key, int) else getattr(here, key)
    return here


ONE_CHAIN = "chains:\n  - name: ethereum\n"


def test_without_a_file_every_default_holds(tmp_path: Path) -> None:
    found = load(env={}, folder=tmp_path)
    assert found == Loaded(config=tree.Config(data_dir=str(tmp_path / ".unfork")), file=None)


def test_the_nearest_file_above_the_working_folder_is_used_and_anchors_its_paths(
    tmp_path: Path,
) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (tmp_path / "unfork.yaml").write_text("data_dir: here\npayloads: {store: blobs}\n")
    assert find(below) == tmp_path / "unfork.yaml"
    config = load(env={}, folder=below).config
    assert config.data_dir == str(tmp_path / "here")
    assert config.payloads.store == str(tmp_path / "blobs")
    nearer = tmp_path / "a" / "unfork.yaml"
    nearer.write_text("")
    assert find(below) == nearer


def test_a_named_file_wins_over_the_found_one(tmp_path: Path) -> None:
    (tmp_path / "unfork.yaml").write_text("devnet: {seed: 1}")
    other = tmp_path / "other.yaml"
    other.write_text("devnet: {seed: 2}")
    assert load(other, env={}, folder=tmp_path).config.devnet.seed == 2
    assert load(env={"UNFORK_CONFIG": str(other)}, folder=tmp_path).config.devnet.seed == 2
    with pytest.raises(ConfigInvalid, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml", env={})


@pytest.mark.parametrize("text", ["", "# only a comment\n", "null\n", "{}"])
def test_an_empty_file_means_the_defaults(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path, text).devnet == tree.Devnet()


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("sync: {confirmations: 3}", ("sync", "confirmations"), 3),
        ("sync: {confirmations: '3'}", ("sync", "confirmations"), 3),
        ("sync: {confirmations: 010}", ("sync", "confirmations"), 10),
        ("payloads: {inline_max_bytes: 16_384}", ("payloads", "inline_max_bytes"), 16_384),
        ("devnet: {fork_rate: 0.5}", ("devnet", "fork_rate"), 0.5),
        ("devnet: {hostile: no}", ("devnet", "hostile"), False),
        ("database: {raw_url: null}", ("database", "raw_url"), None),
        ("database: {raw_url: ~}", ("database", "raw_url"), None),
        (
            "chains: [{name: a, source: {urls: ['http://a', '${NONE:-}']}}]",
            ("chains", 0, "source", "urls"),
            ("http://a",),
        ),
        (
            "chains: [{name: a, scope: {kind: logs, "
            "addresses: [0xdAC17F958D2ee523a2206206994597C13D831ec7]}}]",
            ("chains", 0, "scope", "addresses"),
            ("0xdAC17F958D2ee523a2206206994597C13D831ec7",),
        ),
        (
            f"chains: [{{name: a, scope: {{kind: logs, topics: [null, [0x{'a' * 64}]]}}}}]",
            ("chains", 0, "scope", "topics"),
            (None, ("0x" + "a" * 64,)),
        ),
        (
            "chains:\n- &base {name: a, start: 7}\n- {<<: *base, name: b}",
            ("chains", 1),
            tree.Chain(name="b", start=7),
        ),
        (
            "chains: [{name: a, reorg_depth_max: 12}]",
            ("chains", 0, "finality_depth_min"),
            12,
        ),
        (
            "database: {pools: {ingest: {max_open_conns: 9, max_idle_conns: 1}}}",
            ("database", "pools", "ingest"),
            tree.Pool(max_open_conns=9, max_idle_conns=1),
        ),
    ],
)
def test_a_file_means_what_it_says(
    tmp_path: Path, text: str, path: tuple[Any, ...], expected: Any
) -> None:
    assert value(loaded(tmp_path, text), *path) == expected


@pytest.mark.parametrize(
    ("name", "text", "path", "expected"),
    [
        ("DB_RAW_URL", "postgresql://h/raw", ("database", "raw_url"), "postgresql://h/raw"),
        ("DB_APP_URL", "postgres://h/app", ("database", "app_url"), "postgres://h/app"),
        ("SYNC_CONFIRMATIONS", "20", ("sync", "confirmations"), 20),
        ("MAX_REORG_DEPTH", "200", ("chains", 0, "reorg_depth_max"), 200),
        ("MAX_REORG_DEPTH", "200", ("chains", 1, "reorg_depth_max"), 200),
        ("PAYLOAD_INLINE_MAX_BYTES", "100", ("payloads", "inline_max_bytes"), 100),
        ("DENORMALIZE_EVENTS", "true", ("sync", "denormalize_events"), True),
        ("ORPHAN_KEEP", "5", ("chains", 0, "orphan_keep_blocks"), 5),
        ("SWEEP_GRACE", "60", ("payloads", "sweep_grace_s"), 60),
        ("UNFORK_DATABASE__RAW_URL", "postgresql://h", ("database", "raw_url"), "postgresql://h"),
        ("UNFORK_DATABASE__POOLS__TOOLS__MAX_OPEN_CONNS", "3",
         ("database", "pools", "tools", "max_open_conns"), 3),
        ("UNFORK_CHAINS__ETHEREUM__START", "9", ("chains", 0, "start"), 9),
        ("UNFORK_CHAINS__BASE_2__START", "9", ("chains", 1, "start"), 9),
        ("UNFORK_CHAINS__ETHEREUM__SOURCE__URLS", "http://a, ws://b",
         ("chains", 0, "source", "urls"), ("http://a", "ws://b")),
        ("UNFORK_CHAINS__ETHEREUM__PARTITION_SIZES__LOGS", "10",
         ("chains", 0, "partition_sizes"), {"logs": 10}),
        ("UNFORK_CHAINS", '[{"name": "x", "start": 4}]', ("chains", 0, "start"), 4),
    ],
)  # fmt: skip
def test_a_variable_wins_over_the_file(
    tmp_path: Path, name: str, text: str, path: tuple[Any, ...], expected: Any
) -> None:
    file = """
database: {raw_url: "postgresql://file", app_url: "postgresql://file"}
chains: [{name: ethereum, start: 1, reorg_depth_max: 64}, {name: base_2, start: 1}]
payloads: {inline_max_bytes: 777, sweep_grace_s: 7}
"""
    assert value(loaded(tmp_path, file, {name: text}), *path) == expected
    assert value(loaded(tmp_path, file, {name: ""}), *path) != expected  # Empty is not set.


def test_the_more_exact_variable_wins(tmp_path: Path) -> None:
    env = {"MAX_REORG_DEPTH": "100", "UNFORK_CHAINS__ETHEREUM__REORG_DEPTH_MAX": "200"}
    assert loaded(tmp_path, ONE_CHAIN, env).chains[0].reorg_depth_max == 200


def test_a_flag_wins_over_variable_and_file(tmp_path: Path) -> None:
    flag = Flag(path=("database", "raw_url"), value="postgresql://flag", flag="--db")
    file = 'database: {raw_url: "postgresql://file"}'
    config = loaded(tmp_path, file, {"DB_RAW_URL": "postgresql://env"}, flag)
    assert config.database.raw_url == "postgresql://flag"


def test_a_flag_may_add_a_chain_and_the_environment_still_shapes_it(tmp_path: Path) -> None:
    flag = Flag(
        path=("chains", "base", "source", "urls"),
        value=["http://x"],
        flag="--source",
        adds_chain=True,
    )
    config = loaded(tmp_path, ONE_CHAIN, {"MAX_REORG_DEPTH": "70"}, flag)
    assert [chain.name for chain in config.chains] == ["ethereum", "base"]
    assert config.chains[1].source.urls == ("http://x",)
    assert config.chains[1].reorg_depth_max == 70
    again = Flag(path=("chains", "ethereum", "start"), value=5, flag="--from")
    assert [chain.start for chain in loaded(tmp_path, ONE_CHAIN, {}, again).chains] == [5]


def test_a_flag_that_addresses_an_unknown_chain_is_refused_with_the_nearest_name(
    tmp_path: Path,
) -> None:
    flag = Flag(path=("chains", "etherem", "name"), value="etherem", flag="--chain")
    assert problems(tmp_path, ONE_CHAIN, {}, flag) == [
        "--chain: no chain is called `etherem`; did you mean `ethereum`?"
    ]
    assert [chain.name for chain in loaded(tmp_path, "", {}, flag).chains] == ["etherem"]


@pytest.mark.parametrize(
    ("text", "env", "names"),
    [
        ("", {}, ["devnet"]),
        (ONE_CHAIN, {}, ["ethereum"]),
        ("chains: []", {}, []),
        ("", {"UNFORK_CHAINS": '[{"name": "x"}]'}, ["x"]),
    ],
)
def test_the_chain_there_is_by_default_appears_only_where_nobody_names_one(
    tmp_path: Path, text: str, env: dict[str, str], names: list[str]
) -> None:
    (tmp_path / "unfork.yaml").write_text(text)
    env = {**env, "MAX_REORG_DEPTH": "70"}
    config = load(env=env, folder=tmp_path, fallback={"name": "devnet", "traces": True}).config
    assert [chain.name for chain in config.chains] == names
    assert all(chain.reorg_depth_max == 70 for chain in config.chains)


def test_the_dotenv_file_beside_adds_to_the_environment_and_never_overrides_it(
    tmp_path: Path,
) -> None:
    (tmp_path / ".env").write_text("DB_RAW_URL=postgresql://dotenv\nSYNC_CONFIRMATIONS=5\n")
    config = loaded(tmp_path, "", {"SYNC_CONFIRMATIONS": "6"})
    assert config.database.raw_url == "postgresql://dotenv"
    assert config.sync.confirmations == 6


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("${HOST}", "h"),
        ("${HOST}:${PORT}/x", "h:1/x"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${HOST:-d}", "h"),
        ("$${HOST}", "${HOST}"),
        ("${NONE:-a:-b}", "a:-b"),
        ("cost $5", "cost $5"),
    ],
)
def test_references_are_replaced_from_the_environment(
    tmp_path: Path, written: str, expected: str
) -> None:
    config = loaded(tmp_path, f'payloads: {{store: "s3:{written}"}}', {"HOST": "h", "PORT": "1"})
    assert config.payloads.store == f"s3:{expected}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ndatabse: {}", "unfork.yaml:2: unknown key `databse`; did you mean `database`?"),
        (
            "database:\n  raw_ulr: x",
            "unfork.yaml:2: unknown key `database.raw_ulr`; did you mean `raw_url`?",
        ),
        (
            "chains:\n  - name: a\n    source:\n      url: [http://x]",
            "unfork.yaml:4: unknown key `chains[0].source.url`; did you mean `urls`?",
        ),
        (
            "sync: {zzz: 1}",
            "unfork.yaml:1: unknown key `sync.zzz`; valid here: confirmations, denormalize_events",
        ),
        (
            "chains:\n- name: a\n  start: -1",
            "unfork.yaml:3: chains[0].start: input should be greater than or equal to 0 (got -1)",
        ),
        (
            "chains:\n- name: Ethereum",
            "unfork.yaml:2: chains[0].name: String should match pattern "
            "'^[a-z][a-z0-9_]{0,39}$' (got 'Ethereum')",
        ),
        ("chains:\n- start: 1", "unfork.yaml:2: chains[0].name is missing"),
        (
            "chains:\n- name: a\n- name: a",
            "unfork.yaml:1: chains: chain 'a' is listed twice",
        ),
        (
            "chains:\n- name: a\n  partition_sizes:\n    log: 5",
            "unfork.yaml:3: chains[0].partition_sizes: no table is called 'log'; "
            "did you mean 'logs'?",
        ),
        (
            "chains:\n- name: a\n  scope:\n    kind: logs\n    addresses: [0x12]",
            "unfork.yaml:5: chains[0].scope.addresses: entry 0 is not an address: "
            "0x and 40 hex digits",
        ),
        (
            "chains:\n- name: a\n  scope: {kind: logs, topics: [0x12]}",
            "unfork.yaml:3: chains[0].scope.topics: position 0 holds no topic: "
            "0x and 64 hex digits",
        ),
        (
            "chains:\n- name: a\n  scope: {kind: logs}\n  traces: true",
            "unfork.yaml:2: chains[0]: traces need whole blocks: they cannot be had with scope "
            "kind: logs",
        ),
        (
            "chains:\n- name: a\n  reorg_depth_max: 3\n  finality_depth_min: 9",
            "unfork.yaml:2: chains[0]: finality_depth_min must not exceed reorg_depth_max",
        ),
        (
            "database:\n  pools:\n    ingest: {max_open_conns: 1}",
            "unfork.yaml:3: database.pools.ingest: max_idle_conns must not exceed max_open_conns",
        ),
        ("- a", "unfork.yaml:1: must be a mapping of keys to values"),
        ("a: [", "unfork.yaml:1: not YAML: expected the node content, but found '<stream end>'"),
        (
            "sync: {}\ndevnet: {}\nsync: {}",
            "unfork.yaml:3: key `sync` is already set on line 1",
        ),
        ("sync: &a [*a]", "unfork.yaml:1: an alias that contains itself"),
        (
            "\npayloads:\n  store: ${NONE}",
            "unfork.yaml:3: the environment has no NONE; set it, or write ${NONE:-default}",
        ),
        (
            'payloads:\n  store: "${}"',
            "unfork.yaml:2: a reference is written ${NAME} or ${NAME:-default}",
        ),
        (
            'payloads:\n  store: "${HOME"',
            "unfork.yaml:2: a reference is written ${NAME} or ${NAME:-default}",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "chains:\n- name: a\n  start: 9223372036854775808",
            "unfork.yaml:3: chains[0].start: input should be less than or equal to "
            "1000000000000000000 (got 9223372036854775808)",
        ),
        (
            "chains:\n- name: a\n  partition_sizes:\n    logs: 9223372036854775807",
            "unfork.yaml:3: chains[0].partition_sizes: the partition size of logs must be at most "
            "1,000,000,000,000",
        ),
        (
            "chains:\n- name: pg_catalog",
            "unfork.yaml:2: chains[0].name: names that begin with pg_ belong to Postgres; choose "
            "another (got 'pg_catalog')",
        ),
        (
            "sync:\n  confirmations: yes",
            "unfork.yaml:2: sync.confirmations: must be a number, not true or false (got True)",
        ),
        (
            "devnet:\n  fork_rate: true",
            "unfork.yaml:2: devnet.fork_rate: must be a number, not true or false (got True)",
        ),
        (
            "chains:\n- name: a\n  partition_sizes:\n    logs: on",
            "unfork.yaml:3: chains[0].partition_sizes: logs must be a number, not true or false",
        ),
        (
            "database:\n  statement_timeout_s: inf",
            "unfork.yaml:2: database.statement_timeout_s: input should be a finite number "
            "(got 'inf')",
        ),
        (
            "database:\n  connect_timeout_s: 'nan'",
            "unfork.yaml:2: database.connect_timeout_s: input should be a finite number "
            "(got 'nan')",
        ),
        (
            "chains:\n- name: a\n  source:\n    request_timeout_s: 1e300",
            "unfork.yaml:4: chains[0].source.request_timeout_s: input should be less than or equal "
            "to 86400 (got '1e300')",
        ),
        (
            "jobs:\n- name: token_transfers\n  incremental:\n    min_interval: 99999d",
            "unfork.yaml:4: jobs[0].incremental.min_interval: must be at most 366d (got '99999d')",
        ),
        (
            "devnet:\n  fork_lengths: [same, wider]",
            "unfork.yaml:2: devnet.fork_lengths[1]: input should be 'same', 'longer' or 'shorter' "
            "(got 'wider')",
        ),
        ("chains: {a: 1}", "unfork.yaml:1: chains: input should be a list"),
        ("chains: [a]", "unfork.yaml:1: chains[0]: input should be a mapping of keys to values"),
        ("sync: 3", "unfork.yaml:1: sync: input should be a mapping of keys to values"),
    ],
)
def test_an_impossible_value_is_the_one_problem_and_has_its_line(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert problems(tmp_path, text) == [expected]


def test_every_time_has_a_longest_that_the_database_and_the_clock_can_count() -> None:
    times = [key for key in describe.keys() if key.path[-1].endswith(("_s", "_ms", "_ms_max"))]
    assert len(times) > 8
    for key in times:
        assert "at most" in key.kind, key.dotted


def test_every_problem_is_reported_at_once_in_the_order_of_the_lines(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        "sink: {}\ndevnet: {seed: x}\nchains:\n- name: a\n  strat: 1\n"
        + "#\n" * 5
        + "payloads: {store: '${NONE}'}",
        {"SYNC_CONFIRMATIONS": "-1", "UNFORK_DATABASE__RAW_ULR": "x"},
    )
    assert [problem.split(": ")[0] for problem in found] == [
        "unfork.yaml:1",
        "unfork.yaml:2",
        "unfork.yaml:5",
        "unfork.yaml:11",
        "environment variable SYNC_CONFIRMATIONS",
        "environment variable UNFORK_DATABASE__RAW_ULR",
    ]
    assert found[-1].endswith("did you mean UNFORK_DATABASE__RAW_URL?")


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("UNFORK_DATADIR", True),
        ("UNFORK_DATA", True),
        ("UNFORK_DATABASE", True),
        ("UNFORK_SYNC_CONFIRMATION", True),
        ("UNFORK_CHAINS__ETHEREM__START", True),
        ("UNFORK_DEVNET__NOTHING_LIKE_IT", True),
        ("UNFORK_PORT_5432_TCP_ADDR", False),
        ("UNFORK_PORT", False),
        ("UNFORK_PORT_8080_TCP_PROTO", False),
        ("UNFORK_SERVICE_HOST", False),
        ("UNFORK_SERVICE_PORT", False),
        ("UNFORK_SERVICE_PORT_HTTP", False),
        ("UNFORK_D", False),
        ("UNFORK_TEST_POSTGRES_URL", False),
        ("DB_OTHER_URL", False),
    ],
)
def test_a_variable_that_was_surely_meant_for_us_must_set_something(
    tmp_path: Path, name: str, is_refused: bool
) -> None:
    if is_refused:
        assert name in problems(tmp_path, ONE_CHAIN, {name: "1"})[0]
    else:
        assert loaded(tmp_path, ONE_CHAIN, {name: "1"}) == loaded(tmp_path, ONE_CHAIN)


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("database: {raw_url: 'mysql://u:hunter2@h/db'}", {}),
        ("database: {raw_url: [hunter2]}", {}),
        ("chains: [{name: a, source: {urls: ['ftp://hunter2']}}]", {}),
        ("chains: [{name: a, source: {urls: hunter2}}]", {}),
        ("chains: [{name: a, start: '${SECRET}'}]", {"SECRET": "hunter2"}),
        ("chains: [{name: a, scope: {kind: logs, addresses: ['${S}']}}]", {"S": "hunter2"}),
        ("payloads: {store: '${SECRET}', inline_max_bytes: '${SECRET}'}", {"SECRET": "hunter2"}),
        ("", {"DB_RAW_URL": "hunter2"}),
        ("", {"UNFORK_CHAINS": '[{"name": hunter2}]'}),
        ("", {"UNFORK_DEVNET__SEED": "hunter2"}),
        ("database: 'hunter2'", {}),
    ],
)  # fmt: skip
def test_no_message_and_no_repr_shows_a_secret(
    tmp_path: Path, text: str, env: dict[str, str]
) -> None:
    found = problems(tmp_path, text, env)
    assert found
    assert all("hunter2" not in problem for problem in found)


def test_the_tree_hides_urls_in_its_repr_and_cannot_be_changed() -> None:
    database = tree.Database(raw_url="postgresql://u:hunter2@h")
    config = tree.Config(
        database=database,
        chains=(tree.Chain(name="a", source=tree.Source(urls=("http://h/hunter2",))),),
    )
    assert "hunter2" not in repr(config)
    with pytest.raises(ValueError, match="frozen"):
        config.data_dir = "elsewhere"  # type: ignore[misc]


def test_building_a_tree_in_code_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_DIR", "/elsewhere")
    monkeypatch.setenv("UNFORK_DATA_DIR", "/elsewhere")
    assert tree.Config().data_dir == ".unfork"


def test_the_tables_that_may_be_sized_are_the_datasets_of_the_family() -> None:
    assert set(tree.TABLES) == set(evm.BY_NAME)
