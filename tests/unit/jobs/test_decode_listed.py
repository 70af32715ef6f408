"""Goal: an entry of `decode:` becomes the jobs its author meant, or is refused line by line.

Method: small project folders with ABI files; each with the jobs or the messages expected.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import decoding
from tests.decoding import Row, argument, event
from tests.unit.jobs.projects import problems, read, specs
from unfork.datasets.derivation import Lookup, Mode, Strategy
from unfork.jobs import fingerprint
from unfork.jobs.decode import listed

SWAP = event("Swap", argument("sender", "address", indexed=True), argument("amount", "uint256"))
SYNC = event("Sync", argument("reserve0", "uint112"))
OVERLOAD = event("Swap", argument("amount", "uint256"))
SECRET = event("Secret", argument("amount", "uint256", indexed=True), anonymous=True)
CREATED = event("PairCreated", argument("pair", "address"), argument("number", "uint256"))
ADDRESS = "0x" + "Ab" * 20

FACTORY = f"""
    addresses:
      factory: {{address: {ADDRESS}, abi: factory.json, event: PairCreated, argument: pair}}
"""


def files(*events: Row) -> dict[str, str]:
    return {"pair.json": json.dumps(events), "factory.json": json.dumps([CREATED])}


def entry(rest: str = "") -> str:
    return f"jobs: []\ndecode:\n  - name: uni\n    abi: pair.json\n{rest}"


def test_an_entry_is_a_job_an_event(tmp_path: Path) -> None:
    found = specs(tmp_path, entry(), files(SWAP, SYNC))
    assert list(found) == ["uni_swap", "uni_sync"]
    swap = found["uni_swap"]
    assert (swap.inputs, swap.output) == (("logs",), "uni_swap")
    assert (swap.mode, swap.strategy) == (Mode.CURSOR, Strategy.REPLACE)
    assert swap.only == {"logs": {"topic0": (decoding.topic(SWAP),)}}
    assert swap.where() == "unfork.yaml:3" or swap.where().endswith("unfork.yaml:3")
    assert list(specs(tmp_path, entry("    events: [Sync]"), files(SWAP, SYNC))) == ["uni_sync"]
    artifact = {"pair.json": json.dumps({"abi": [SWAP], "bytecode": "0x"})}
    assert list(specs(tmp_path, entry(), artifact)) == ["uni_swap"]


def test_events_of_one_name_are_told_apart_by_their_topics(tmp_path: Path) -> None:
    one, two = decoding.topic(SWAP)[:4].hex(), decoding.topic(OVERLOAD)[:4].hex()
    found = specs(tmp_path, entry(), files(SWAP, OVERLOAD, SYNC))
    assert list(found) == [f"uni_swap_{one}", f"uni_swap_{two}", "uni_sync"]
    rest = '    events: ["Swap(uint256)"]'
    assert list(specs(tmp_path, entry(rest), files(SWAP, OVERLOAD))) == [f"uni_swap_{two}"]
    long = event("A" + "bC" * 40, argument("x", "bool"))
    (name,) = specs(tmp_path, entry(), files(long))
    assert len(name) == 40 and name.endswith(decoding.topic(long)[:4].hex())


def test_a_factory_is_a_job_more_that_the_others_look_up(tmp_path: Path) -> None:
    found = specs(tmp_path, entry(FACTORY), files(SWAP))
    assert list(found) == ["uni_pair_created", "uni_swap"]
    created, swap = found["uni_pair_created"], found["uni_swap"]
    assert created.only["logs"]["address"] == (bytes.fromhex(ADDRESS[2:]),)
    assert created.lookups == {}
    assert swap.inputs == ("logs", "uni_pair_created")
    assert swap.lookups == {"uni_pair_created": Lookup("pair", "address")}
    nested = FACTORY.replace(
        ADDRESS, f"{{factory: {{address: {ADDRESS}, abi: f.json, event: Made, argument: it}}}}"
    )
    made = {"f.json": json.dumps([event("Made", argument("it", "address", indexed=True))])}
    found = specs(tmp_path, entry(nested), {**files(SWAP), **made})
    assert list(found) == ["uni_made", "uni_pair_created", "uni_swap"]
    assert found["uni_pair_created"].lookups == {"uni_made": Lookup("it", "address")}


def test_only_what_decides_the_rows_changes_the_hash(tmp_path: Path) -> None:
    def hashed(*events: Row, rest: str = "") -> str:
        catalog = read(tmp_path, entry(rest), files(*events))
        return fingerprint.config_hash(catalog.lineage.jobs["uni_swap"], catalog.folder)

    plain = hashed(SWAP)
    commented = {**SWAP, "inputs": [{**one, "internalType": "x"} for one in SWAP["inputs"]]}
    assert hashed(SYNC, commented) == plain
    listed_ = hashed(SWAP, rest=f"    addresses: [{ADDRESS}]")
    assert listed_ != plain
    assert hashed(SWAP, rest=f"    addresses: [{ADDRESS.lower().replace('0X', '0x')}]") == listed_
    assert hashed(SWAP, rest=FACTORY) not in (plain, listed_)
    renamed = {**SWAP, "inputs": [SWAP["inputs"][0], argument("much", "uint256")]}
    assert hashed(renamed) != plain


@pytest.mark.parametrize(
    ("rest", "line", "why"),
    [
        ("    events: [Swop]", 5, "the ABI has no event `Swop`; did you mean `Swap`?"),
        ("    events: [Zzz]", 5, "the ABI has no event `Zzz`; there are Swap, Sync"),
        ("    events: [Swap, Swap]", 5, "'Swap' is named twice"),
        ("    addresses: [0x12]", 5, "'0x12' is no address: 0x and 40 hexadecimal digits"),
        ("    addresses: []", 5, "lists no address; write any for all contracts"),
        ("    addresses: every", 5, "must be any, a list of addresses, or factory:"),
        (f"    addresses: [{ADDRESS}, {ADDRESS.lower()}]", 5, "is listed twice"),
        ("    adresses: any", 5, "unknown key `decode[0].adresses`; did you mean `addresses`?"),
        (FACTORY.replace("argument", "argment"), 7, "did you mean `argument`?"),
        (FACTORY.replace("PairCreated", "PairCreate"), 7, "did you mean `PairCreated"),
        (FACTORY.replace("argument: pair", "argument: pare"), 7, "did you mean `pair`?"),
        (FACTORY.replace("argument: pair", "argument: number"), 7, "of type uint256, not address"),
        (FACTORY.replace("factory.json", "none.json"), 7, "cannot be read"),
        (FACTORY.replace(ADDRESS, "any"), 7, "a factory must be known by its address"),
        ("    on_change: never", 5, "on_change"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, rest: str, line: int, why: str
) -> None:
    found = problems(tmp_path, entry(rest.lstrip("\n")), files(SWAP, SYNC))
    at = line - (1 if rest.startswith("\n") else 0)
    assert any(text.startswith(f"unfork.yaml:{at}: ") and why in text for text in found), found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "pair.json: is not JSON"),
        ("[]", "pair.json: has no event"),
        ('[{"type": "event", "name": "E", "inputs": [{"type": "uint7"}]}]', "event `E`: the type"),
    ],
)
def test_an_abi_that_cannot_be_used_is_refused_at_its_line(
    tmp_path: Path, text: str, why: str
) -> None:
    (found,) = problems(tmp_path, entry(), {"pair.json": text})
    assert found.startswith("unfork.yaml:4: ") and why in found


def test_an_anonymous_event_needs_an_address(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, entry(), files(SECRET, SWAP))
    assert "`Secret` is anonymous" in found and "list the addresses" in found
    assert list(specs(tmp_path, entry("    events: [Swap]"), files(SECRET, SWAP))) == ["uni_swap"]
    secret = specs(tmp_path, entry(f"    addresses: [{ADDRESS}]"), files(SECRET))["uni_secret"]
    assert list(secret.only["logs"]) == ["address"]


def test_names_that_clash_are_refused(tmp_path: Path) -> None:
    twice = entry() + "\n  - {name: uni, abi: pair.json}\n"
    found = problems(tmp_path, twice, files(SWAP))
    assert any("job `uni_swap` is declared already" in text for text in found)
    taken = entry().replace(
        "jobs: []", "jobs:\n  - {name: uni_swap, input_datasets: [logs], sql: q.sql}"
    )
    found = problems(tmp_path, taken, {**files(SWAP), "q.sql": "SELECT * FROM logs"})
    assert any("job `uni_swap` is declared already" in text for text in found)
    own = entry(FACTORY).replace("pair.json", "factory.json")
    assert any("declared already" in text for text in problems(tmp_path, own, files(SWAP)))


def test_jobs_of_people_read_what_is_decoded(tmp_path: Path) -> None:
    jobs = "jobs:\n  - {name: large, input_datasets: [uni_swap], sql: q.sql}"
    text = entry().replace("jobs: []", jobs)
    sql = {"q.sql": "SELECT * FROM uni_swap WHERE amount IS NOT NULL"}
    found = read(tmp_path, text, {**files(SWAP), **sql})
    assert [spec.name for spec in found.lineage.order] == ["uni_swap", "large"]
    assert found.lineage.jobs["uni_swap"].transform == listed.TRANSFORM


LOOKED = """jobs:
  - name: users
    input_datasets: [logs]
    sql: users.sql
  - name: theirs
    input_datasets: [transactions, users]
    lookups: {users: {column: user, by: from_address}}
    sql: theirs.sql
"""
USERS = "SELECT block_number, block_hash, address AS user FROM logs"
THEIRS = """SELECT t.block_number, t.block_hash, t.hash FROM transactions AS t
LEFT SEMI JOIN users AS u ON u.user = t.from_address AND u.block_number <= t.block_number"""


def test_a_job_may_look_up_what_another_one_replaces(tmp_path: Path) -> None:
    found = specs(tmp_path, LOOKED, {"users.sql": USERS, "theirs.sql": THEIRS})
    assert found["theirs"].lookups == {"users": Lookup("user", "from_address")}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("lookups: {users:", "lookups: {user:"), "did you mean `users`?"),
        (("lookups: {users:", "lookups: {transactions:"), "is the first input, which drives"),
        (("sql: theirs.sql", "sql: theirs.sql\n    incremental: {mode: full}"), "mode: cursor"),
        (("[transactions, users]", "[transactions, blocks]"), "not among input_datasets"),
        (("users.sql", "users.sql\n    incremental: {mode: full}"), "cannot be looked up"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(
    tmp_path: Path, change: tuple[str, str], why: str
) -> None:
    text = LOOKED.replace(*change, 1)
    found = problems(tmp_path, text, {"users.sql": USERS, "theirs.sql": THEIRS})
    assert any(why in each for each in found), found


@pytest.mark.parametrize(
    ("change", "is_fine"),
    [
        (("u.block_number <= t.block_number", "t.block_number >= u.block_number"), True),
        (("u.user = t.from_address", "t.from_address = u.user"), True),
        (("LEFT SEMI JOIN", "LEFT JOIN"), True),
        (("LEFT SEMI JOIN", "FULL JOIN"), False),
        (("LEFT SEMI JOIN", "RIGHT OUTER JOIN"), False),
        (("u.block_number <= t.block_number", "u.block_number >= t.block_number"), False),
        (("u.block_number <= t.block_number", "u.block_number < t.block_number"), False),
        (("u.user = t.from_address AND ", ""), False),
        (("u.user = t.from_address", "u.user = t.to_address"), False),
        ((" AND u.block_number <= t.block_number", ""), False),
        ((" AND ", " OR "), False),
    ],
)
def test_a_query_joins_a_lookup_up_to_its_own_block(
    tmp_path: Path, change: tuple[str, str], is_fine: bool
) -> None:
    held = {"users.sql": USERS, "theirs.sql": THEIRS.replace(*change, 1)}
    if is_fine:
        assert "theirs" in specs(tmp_path, LOOKED, held)
    else:
        found = problems(tmp_path, LOOKED, held)
        assert any("a lookup must be joined ON its user = from_address" in one for one in found)
