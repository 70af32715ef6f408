"""Owns what is kept of contract reads, as the code that reads them sees it: answers, and own rows.

An answer is kept under the hash of the block it was asked at, so it can only be met again by a
question about that very block. One that is good for longer (its contract's code stays) is met by
questions about later blocks too, where the app side knows the chain that they ask about and finds
the block of the answer on it.

Blocking, over psycopg, and the same in a task of Spark and in the driver. Safe to repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from unfork import errors
from unfork.app import schema as app_schema
from unfork.app.generations import Generation
from unfork.chain.block import BlockRef
from unfork.database import failures
from unfork.jobs.spark import connection
from unfork.jobs.spark.place import Place
from unfork.sources.source import ContractCall, Returned

#: Rows of one statement.
ROWS_AT_ONCE = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The chain that a run reads."""

    #: The last block of the run.
    last: BlockRef
    #: What was final when the run began to read; -1 for nothing.
    floor: int
    epoch: int


class Kept:
    """The answers of one chain's contracts, over one connection."""

    def __init__(self, place: Place, moment: Moment, opened: psycopg.Connection[Any]) -> None:
        self._queries = app_schema.bound(place.chain.name)
        self._moment = moment
        self._opened = opened

    def held(self, calls: Sequence[ContractCall]) -> dict[int, Returned]:
        """The answers that are kept, by the place of their question."""
        found: dict[int, Returned] = {}
        for places in _chunks(range(len(calls))):
            asked = [calls[place] for place in places]
            rows = self._rows(
                "reads_held", places=list(places), hashes=_hashes(asked), **_of(asked)
            )
            found |= _answers(rows)
        return found

    def lasting(self, calls: Sequence[ContractCall], codes: Sequence[bytes]) -> dict[int, Returned]:
        """The same of answers that were given at a lower block by the same code."""
        found: dict[int, Returned] = {}
        for places in _chunks(range(len(calls))):
            asked = [calls[place] for place in places]
            rows = self._rows(
                "reads_lasting",
                places=list(places),
                numbers=[call.at.number for call in asked],
                codes=[codes[place] for place in places],
                last=self._moment.last.number,
                last_hash=self._moment.last.hash,
                floor=self._moment.floor,
                epoch=self._moment.epoch,
                **_of(asked),
            )
            found |= _answers(rows)
        return found

    def keep(
        self,
        calls: Sequence[ContractCall],
        answers: Sequence[Returned],
        codes: Sequence[bytes | None],
    ) -> None:
        """Keeps answers; with a code, for as long as the contract has it."""
        for places in _chunks(range(len(calls))):
            asked = [calls[place] for place in places]
            told = [answers[place] for place in places]
            self._run(
                "reads_keep",
                numbers=[call.at.number for call in asked],
                hashes=_hashes(asked),
                codes=[codes[place] for place in places],
                oks=[one.ok for one in told],
                outputs=[one.output for one in told],
                floor=self._moment.floor,
                epoch=self._moment.epoch,
                **_of(asked),
            )

    def known(
        self,
        build: Generation,
        parent: BlockRef | None,
        keys: Sequence[bytes],
        names: Sequence[str],
    ) -> list[dict[str, Any]]:
        """What a build holds of some keys, in a state in which it ends at `parent`.

        Raises BlockReplaced where it ends elsewhere: the run is not the next one any more.
        """
        self._opened.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        found: list[dict[str, Any]] = []
        with self._opened.transaction():
            (row,) = self._rows("reads_watermark", id=build.id)
            ours = None if row["number"] is None else BlockRef(row["number"], row["hash"])
            if ours != parent:
                raise errors.BlockReplaced(
                    f"{build.table} ends at {ours}, not at {parent}, after which this run is; "
                    "it is planned again",
                    wanted=parent,
                    ours=ours,
                )
            query = self._queries.of(
                "reads_known",
                build.table,
                table=build.table,
                columns=tuple(names),
                key=build.dataset.key[0],
            )
            for places in _chunks(range(len(keys))):
                given = [keys[place] for place in places]
                cursor = self._opened.execute(query.text, {"keys": given})
                found += cursor.fetchall()
        return found

    def _rows(self, name: str, **parameters: object) -> list[dict[str, Any]]:
        return self._opened.execute(self._queries[name].text, parameters).fetchall()

    def _run(self, name: str, **parameters: object) -> None:
        self._opened.execute(self._queries[name].text, parameters)


@contextmanager
def opened(place: Place, moment: Moment) -> Iterator[Kept]:
    """What is kept of a chain's contracts, over a connection of its own."""
    database, url = place.config.database, place.app_url
    try:
        parameters = connection.parameters(
            url, database.connect_timeout_s, statement_s=database.statement_timeout_s
        )
        with psycopg.connect(parameters, autocommit=True, row_factory=dict_row) as made:
            yield Kept(place, moment, made)
    except psycopg.Error as error:
        raise failures.translate(error, url, "contract_reads") from error


def _of(calls: Sequence[ContractCall]) -> Mapping[str, list[bytes]]:
    return {
        "addresses": [call.address for call in calls],
        "datas": [call.data for call in calls],
    }


def _hashes(calls: Sequence[ContractCall]) -> list[bytes]:
    return [call.at.hash for call in calls]


def _answers(rows: Iterable[Mapping[str, Any]]) -> dict[int, Returned]:
    return {row["place"]: Returned(ok=row["ok"], output=row["output"]) for row in rows}


def _chunks(places: range) -> Iterator[range]:
    for at in range(0, len(places), ROWS_AT_ONCE):
        yield places[at : at + ROWS_AT_ONCE]
