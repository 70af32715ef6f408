"""Owns what a failure of Postgres means to the caller: wait, fix something, or stop.

The first question is never which error it was but what to do; SQLSTATE classes answer it. Messages
carry the server's own first line and the DSN without its secrets.
"""

from __future__ import annotations

import re

import psycopg

from unfork import errors, telemetry

#: Classes of SQLSTATE after which waiting helps, with what to say.
_PASSING = {
    "08": "the connection failed",
    "25": "the server refuses writes (a standby, perhaps)",
    "40": "the server gave up a transaction that met another one",
    "53": "the server is out of a resource (disk, memory or connections)",
    "55": "something else holds a lock",
    "57": "the server ended the statement or is going down",
    "58": "the server's disk or system failed",
    "XX": "the server failed inside",
}


#: What a server says to a client that it will not let in, however often it asks.
_REFUSED = re.compile(r"does not exist|authentication failed|no pg_hba\.conf entry")


def translate(error: Exception, url: str, doing: str) -> errors.UnforkError:
    """The typed error for a failure met while `doing` something at `url`."""
    where = f"Postgres at {telemetry.redact(url)}"
    state = getattr(error, "sqlstate", None) or ""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    fields = {"sqlstate": state or None, "doing": doing}
    if state in ("42P01", "42703", "3F000"):
        return errors.SchemaOutdated(
            f"{where} lacks what {doing} needs ({said}); run `unfork migrate`", **fields
        )
    if state == "53100":
        return errors.DatabaseUnavailable(
            f"{where} has no disk space left: free some, it is tried again ({said})", **fields
        )
    if state[:2] in _PASSING:
        return errors.DatabaseUnavailable(f"{where}: {_PASSING[state[:2]]} ({said})", **fields)
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return errors.RowRefused(f"{where} refused a row while {doing}: {said}", **fields)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        # Before there is a session, the server's refusals come without their SQLSTATE.
        hint = "; check the name, user and password in its URL" if _REFUSED.search(said) else ""
        return errors.DatabaseUnavailable(f"{where}: {said}{hint}", **fields)
    return errors.Misconfigured(f"{where} refused {doing}: {said}", **fields)
