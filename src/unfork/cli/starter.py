"""Owns the starter project of one contract: what `unfork init --abi` writes, made of its ABI.

The project works as it is: every event of the ABI is decoded into a table of its own, a SQL job
reads one of them, and a test runs that job over a chain of a few lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unfork.config import render
from unfork.config.jobs import NAME
from unfork.errors import Misconfigured
from unfork.jobs.decode import abi
from unfork.jobs.decode.abi import Event
from unfork.jobs.decode.columns import snake
from unfork.jobs.decode.listed import name_of
from unfork.jobs.decode.types import AbiInvalid
from unfork.proof.keccak import keccak256

#: Characters of a project's name: the names of its datasets begin with it.
NAME_MAX = 18

#: Types of the ABI, by what a test writes for a value of them.
_SAMPLES = (
    (r"u?int\d*", "5"),
    (r"address", "alice"),
    (r"bool", "true"),
    (r"string", '"a text"'),
    (r"bytes\d*|function", "0x01"),
)

JOB = "events_by_block"

SQL = """\
-- How many `{event}` events each block holds. A job's SQL is one SELECT over its inputs; this one
-- keeps blocks apart (GROUP BY block_number), so that each is computed, and undone, by itself.
SELECT
    block_number,
    block_hash,
    count(*) AS events
FROM {dataset}
GROUP BY block_number, block_hash
"""

CONFTEST = '''\
"""The fixtures of unfork, for every test below."""

pytest_plugins = ("unfork.testing.plugin",)
'''

TEST = '''\
"""What the jobs of this project compute, through a fork. Run it with `pytest`."""

from pathlib import Path

from unfork.testing import chain

ABI = Path(__file__).parents[1] / "{abi}"
CONTRACT = "{address}"


def test_events_are_counted_by_block_and_follow_a_fork(spark_job):
    blocks = chain(
        """
        1:  {call}
            {call}
        2:  {call}
        2':                     # another block 2, in which nothing happens
        """,
        abi=ABI,
        names={{"CONTRACT": CONTRACT}},
    )
    before, after = spark_job.states("{job}", blocks)
    assert before.select("block_hash", "events") == [("1", 2), ("2", 1)]
    assert after.select("block_hash", "events") == [("1", 2)]
'''

README = """\
# {name}

Follows {contracts} and keeps a table for every event of `{abi}`, right through every fork.

| file | what |
|---|---|
| `unfork.yaml` | the chain, the contract to decode, and the jobs |
| `jobs/{job}.sql` | a job of your own, over one of the events |
| `tests/test_jobs.py` | its test, over a chain of a few lines |
| `.env.example` | copy it to `.env` and put your node's URL there |

```
cp .env.example .env                    # and set ETHEREUM_HTTP
unfork doctor                           # is everything there?
unfork up                               # follow the chain and compute, until Ctrl-C
unfork jobs                             # how far each job is, and why not further
unfork jobs preview {job} --watch       # change jobs/{job}.sql, and see what comes of it
pip install pytest && pytest            # the test; no node is needed
```

Set `start` in `unfork.yaml` to the block in which the contract was made: nothing before it has to
be fetched.
"""

ENVIRONMENT = """\
# The node: http(s)://
ETHEREUM_HTTP=
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the project is made of."""

    #: What the names of its datasets begin with.
    name: str
    #: The ABI as it was read.
    abi: str
    events: tuple[Event, ...]
    #: Empty for any contract.
    addresses: tuple[str, ...]

    @property
    def decoded(self) -> tuple[Event, ...]:
        """The events that can be told: nothing but its address tells an anonymous one's logs."""
        return tuple(one for one in self.events if self.addresses or not one.is_anonymous)


def read(file: Path, addresses: Sequence[str], name: str | None) -> Contract:
    """The contract that a person named; raises Misconfigured with what is wrong with it."""
    try:
        events = abi.load(file)
    except AbiInvalid as error:
        raise Misconfigured(f"{file} {error}") from error
    return Contract(
        name=_named(file, name),
        abi=file.read_text(encoding="utf-8"),
        events=events,
        addresses=tuple(map(_address, addresses)),
    )


def files(contract: Contract) -> dict[str, str]:
    """The files of the project, by their place in it."""
    event = _chosen(contract)
    place = f"abi/{contract.name}.json"
    dataset = name_of(contract.name, event, is_overloaded=False)
    told = {
        "name": contract.name,
        "abi": place,
        "job": JOB,
        "event": event.name,
        "dataset": dataset,
        "address": contract.addresses[0] if contract.addresses else "0x" + "c0de" * 10,
        "call": _call(event),
        "contracts": ", ".join(contract.addresses) or "every contract with these events",
    }
    return {
        "unfork.yaml": render.starter(_branches(contract, place, dataset)),
        place: contract.abi,
        f"jobs/{JOB}.sql": SQL.format(**told),
        "conftest.py": CONFTEST,
        "tests/test_jobs.py": TEST.format(**told),
        "README.md": README.format(**told),
        ".env.example": render.dotenv() + "\n" + ENVIRONMENT,
    }


def _branches(contract: Contract, place: str, dataset: str) -> dict[str, Sequence[str]]:
    """The branches of unfork.yaml that say something."""
    listed = ", ".join(f'"{address}"' for address in contract.addresses)
    events = "    # events: [...]              # only these; all when left out"
    if contract.decoded != contract.events:
        # Without addresses an anonymous event would be refused.
        events = f"    events: [{', '.join(one.name for one in contract.decoded)}]"
    return {
        "chains": (
            "# The chain; its schemas are ethereum_raw and ethereum_app.",
            "chains:",
            "  - name: ethereum",
            "    source:",
            '      urls: ["${ETHEREUM_HTTP:-http://localhost:8545}"]',
            "    # The first block to hold: the one in which the contract was made.",
            "    # start: 0",
            "    # Only headers and these contracts' logs, which is little to fetch:",
            f"    # scope: {{kind: logs, addresses: [{listed}]}}",
        ),
        "decode": (
            "# Every event of the ABI becomes a table: "
            f"{contract.name}_ and the event's name in snake case.",
            "decode:",
            f"  - name: {contract.name}",
            f"    abi: {place}",
            f"    addresses: {f'[{listed}]' if listed else 'any'}",
            events,
        ),
        "jobs": (
            "# What is computed from them; `unfork jobs preview NAME` shows what one would write.",
            "jobs:",
            f"  - name: {JOB}",
            f"    input_datasets: [{dataset}]",
            f"    sql: jobs/{JOB}.sql",
            "    unique_key: [block_number]",
            "    # Rows that fail a check are not published.",
            "    checks:",
            "      - not_null: [block_number, events]",
            f"      - {{name: no_empty_block, sql: SELECT * FROM {JOB} WHERE events < 1}}",
        ),
    }


def _named(file: Path, name: str | None) -> str:
    """The name of the project: given, or that of the file."""
    found = name if name is not None else snake(file.stem)[:NAME_MAX].strip("_")
    if not re.fullmatch(NAME, found) or len(found) > NAME_MAX:
        raise Misconfigured(
            f"{found!r} cannot begin the names of datasets: small letters, digits and _, a letter "
            f"first, {NAME_MAX} at most; say --name"
        )
    return found


def _address(text: str) -> str:
    """An address, checked; raises Misconfigured."""
    if not re.fullmatch(r"0x[0-9a-fA-F]{40}", text):
        raise Misconfigured(f"{text!r} is no address: 0x and 40 hexadecimal digits")
    digits = text[2:]
    if digits not in (digits.lower(), digits.upper()) and digits != _mixed(digits):
        raise Misconfigured(
            f"{text} is no address: its capitals are a checksum that does not fit (EIP-55); was it "
            "copied whole?"
        )
    return text.lower()


def _mixed(digits: str) -> str:
    """The digits of an address with the capitals that are their checksum."""
    hashed = keccak256(digits.lower().encode()).hex()
    pairs = zip(digits.lower(), hashed, strict=False)
    return "".join(digit.upper() if int(sign, 16) >= 8 else digit for digit, sign in pairs)


def _chosen(contract: Contract) -> Event:
    """The event that the first job reads: one whose dataset is called for its name alone."""
    names = [snake(event.name) for event in contract.events]
    known = [event for event in contract.decoded if names.count(snake(event.name)) == 1]
    if not known:
        raise Misconfigured(
            "every event of the ABI is anonymous, which takes --address, or shares its name with "
            "another one"
        )
    return next((event for event in known if event.name == "Transfer"), known[0])


def _call(event: Event) -> str:
    """The event as a test's text calls it."""
    values = ", ".join(_sample(one.document) for one in event.arguments)
    return f"{event.name}({values}) by CONTRACT"


def _sample(argument: Mapping[str, Any]) -> str:
    """A value of an argument's type, as a test's text writes it; raises ValueError."""
    kind: str = argument["type"]
    array = re.fullmatch(r"(.*)\[(\d*)\]", kind)
    if array is not None:
        inner, size = array.groups()
        item = _sample({**argument, "type": inner})
        return f"[{', '.join([item] * int(size or 1))}]"
    if kind == "tuple":
        return f"({', '.join(_samples(argument['components']))})"
    for pattern, sample in _SAMPLES:
        if re.fullmatch(pattern, kind):
            return sample
    raise ValueError(kind)


def _samples(arguments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    return map(_sample, arguments)
