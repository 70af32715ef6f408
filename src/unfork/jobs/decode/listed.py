"""Owns the way from the configuration's `decode:` to jobs: one an event, like any other job.

An entry that takes its contracts from a factory stands for one more job, which decodes what the
factory announced; the others look that up. A factory of factories is one more again.

A dataset is called for the entry and the event. Events of one name get the first bytes of their
topic as well, all of them, so that none changes its name when another one is left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfork.config import jobs as declared
from unfork.config.decode import Addresses, Decode, Factory
from unfork.config.draft import Problem
from unfork.config.load import Loaded
from unfork.jobs.decode import abi, columns
from unfork.jobs.decode.abi import Event
from unfork.jobs.decode.columns import PLACE, snake
from unfork.jobs.decode.types import AbiInvalid, Form

TRANSFORM = "unfork.jobs.transforms.decode:events"

#: Characters of a dataset's name, and how many of them are kept where a hash replaces the rest.
NAME_MAX, KEPT_MAX = 40, 31

#: Bytes of a topic that tell events of one name apart.
TOPIC_BYTES = 4

_KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A job that an entry stands for."""

    job: declared.Job
    #: Where the entry is written.
    path: _KeyPath
    #: The columns that it reads, by input.
    columns: Mapping[str, tuple[str, ...]]
    #: Which logs matter to it.
    only: Mapping[str, Mapping[str, tuple[bytes, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Announced:
    """Where the addresses of contracts are looked up."""

    dataset: str
    column: str


@dataclass(slots=True)
class _Found:
    """What entries stand for, and what is wrong with them."""

    loaded: Loaded
    jobs: list[Decoded] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def refuse(self, path: _KeyPath, what: str) -> None:
        self.problems.append(Problem(self.loaded.where(path), what))


def expanded(loaded: Loaded) -> tuple[list[Decoded], list[Problem]]:
    """The jobs that `decode:` stands for, and every problem that needs no look at other jobs."""
    found = _Found(loaded)
    for index, entry in enumerate(loaded.config.decode):
        _expand(found, ("decode", index), entry)
    return found.jobs, found.problems


def name_of(prefix: str, event: Event, *, is_overloaded: bool) -> str:
    """What the dataset of an event is called."""
    name = f"{prefix}_{snake(event.name) or 'event'}"
    topic = event.topic[:TOPIC_BYTES].hex()
    if is_overloaded:
        name = f"{name}_{topic}"
    return name if len(name) <= NAME_MAX else f"{name[:KEPT_MAX]}_{topic}"


def _expand(found: _Found, path: _KeyPath, entry: Decode) -> None:
    known = _read(found, (*path, "abi"), entry.abi)
    announced = _announced(found, path, entry, entry.addresses, (*path, "addresses"))
    for event in _chosen(found, path, entry, known):
        if event.is_anonymous and entry.addresses.is_any:
            found.refuse(
                (*path, "addresses"),
                f"`{event.name}` is anonymous: nothing but its address tells its logs; list the "
                "addresses, or leave the event out by naming the others under events",
            )
            continue
        found.jobs.append(_job(path, entry, known, event, announced))


def _read(found: _Found, path: _KeyPath, file: str) -> tuple[Event, ...]:
    try:
        return abi.load(Path(file))
    except AbiInvalid as error:
        found.refuse(path, f"{file}: {error}")
        return ()


def _chosen(
    found: _Found, path: _KeyPath, entry: Decode, known: Sequence[Event]
) -> Iterator[Event]:
    """The events of an entry; unknown names become problems."""
    if not entry.events or not known:
        yield from known
        return
    wanted: set[str] = set()
    for place, name in enumerate(entry.events):
        if not _named(name, known):
            found.refuse((*path, "events", place), _unknown(name, known))
        wanted |= {event.signature for event in _named(name, known)}
    yield from (event for event in known if event.signature in wanted)


def _named(name: str, known: Sequence[Event]) -> list[Event]:
    """The events that a name, or a signature, means."""
    text = name.replace(" ", "")
    return [event for event in known if text in (event.name, event.signature)]


def _unknown(name: str, known: Sequence[Event]) -> str:
    names = sorted({event.name for event in known} | {event.signature for event in known})
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    every = ", ".join(sorted({event.name for event in known}))
    hint = f"did you mean `{near[0]}`?" if near else f"there are {every}"
    return f"the ABI has no event `{name}`; {hint}"


def _announced(
    found: _Found, path: _KeyPath, entry: Decode, addresses: Addresses, at: _KeyPath
) -> _Announced | None:
    """Where addresses are looked up that a factory announces; None where they are none of those."""
    factory = addresses.factory
    if factory is None:
        return None
    at = (*at, "factory")
    known = _read(found, (*at, "abi"), factory.abi)
    # A factory of factories comes first: what it announces is read by the next one.
    above = _announced(found, path, entry, factory.address, (*at, "address"))
    event = _announcing(found, at, factory, known)
    if event is None:
        return None
    job = _job(path, entry, known, event, above, addresses=factory.address)
    found.jobs.append(job)
    column = next(one for one in columns.of(event) if one.argument.name == factory.argument)
    return _Announced(dataset=job.job.name, column=column.name)


def _announcing(
    found: _Found, at: _KeyPath, factory: Factory, known: Sequence[Event]
) -> Event | None:
    """The event by which a factory announces, None where there is a problem."""
    if not known:
        return None
    events = _named(factory.event, known)
    if len(events) != 1:
        what = _unknown(factory.event, known)
        if events:
            every = " or ".join(f"`{event.signature}`" for event in events)
            what = f"the ABI has several events `{factory.event}`; write {every}"
        found.refuse((*at, "event"), what)
        return None
    arguments = {one.name: one for one in events[0].arguments}
    argument = arguments.get(factory.argument)
    if argument is None:
        names = ", ".join(name for name in arguments if name) or "none with a name"
        near = difflib.get_close_matches(factory.argument, arguments, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {names}"
        what = f"event `{events[0].name}` has no argument `{factory.argument}`; {hint}"
        found.refuse((*at, "argument"), what)
        return None
    if argument.type.form is not Form.ADDRESS:
        what = f"argument `{argument.name}` is of type {argument.type.canonical}, not address"
        found.refuse((*at, "argument"), what)
        return None
    return events[0]


def _job(
    path: _KeyPath,
    entry: Decode,
    known: Sequence[Event],
    event: Event,
    announced: _Announced | None,
    *,
    addresses: Addresses | None = None,
) -> Decoded:
    """The job of one event."""
    listed = (addresses or entry.addresses).listed
    is_overloaded = sum(snake(one.name) == snake(event.name) for one in known) > 1
    topics = () if event.is_anonymous else ("topic0",)
    config: dict[str, Any] = {"event": event.document}
    only: dict[str, tuple[bytes, ...]] = dict.fromkeys(topics, (event.topic,))
    if listed:
        config["addresses"] = sorted(listed)
        only["address"] = tuple(bytes.fromhex(each[2:]) for each in listed)
    read: dict[str, tuple[str, ...]] = {
        "logs": (*PLACE, "topic0", "topic1", "topic2", "topic3", "data")
    }
    lookups = {}
    if announced is not None:
        config["column"] = announced.column
        read[announced.dataset] = (announced.column, "block_number")
        lookups[announced.dataset] = declared.Lookup(column=announced.column, by="address")
    job = declared.Job(
        name=name_of(entry.name, event, is_overloaded=is_overloaded),
        input_datasets=tuple(read),
        lookups=lookups,
        transform=TRANSFORM,
        config=config,
        on_change=entry.on_change,
    )
    return Decoded(job=job, path=path, columns=read, only={"logs": only})
