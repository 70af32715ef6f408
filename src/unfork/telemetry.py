"""Owns how unfork speaks of itself: one log line per event, an event name plus fields.

Secrets never reach a log: URLs are shown without user, password, path and query, since providers
put keys into each of them.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any
from urllib.parse import urlsplit


def logger(name: str) -> logging.Logger:
    """The logger of a module, below `unfork`."""
    return logging.getLogger(name if name.startswith("unfork") else f"unfork.{name}")


def event(log: logging.Logger, name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Logs one event with its fields."""
    if log.isEnabledFor(level):
        log.log(level, name, extra={"fields": fields})


def redact(url: str) -> str:
    """A URL that is safe to show: scheme, host and port, nothing else."""
    parts = urlsplit(url)
    if not parts.netloc:
        return f"{parts.scheme}:…" if parts.scheme else "…"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    hidden = "/…" if (parts.username or parts.query or parts.path.strip("/")) else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{hidden}"


def configure(*, level: str = "INFO", as_json: bool = False) -> None:
    """Sends unfork's events to standard error, once per process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    root = logging.getLogger("unfork")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        tail = "".join(f" {key}={_short(value)}" for key, value in fields.items())
        line = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname.lower():7} "
        line += f"{record.getMessage()}{tail}"
        return line if not record.exc_info else f"{line}\n{self.formatException(record.exc_info)}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        document = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=_short, ensure_ascii=False)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return "0x" + value.hex()
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text else text
