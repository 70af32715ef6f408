"""Owns how a length of time is written: seconds, or a number with s, m, h or d."""

from __future__ import annotations

import re
from typing import Any

from unfork.config.branch import WAIT_S_MAX

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
#: The longest one that makes sense, about a year.
INTERVAL_S_MAX = 366 * WAIT_S_MAX


def seconds(value: Any) -> float:
    """The seconds of a length of time; raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value))
    if match is None:
        raise ValueError("must be seconds, or a number with s, m, h or d")
    found = float(match.group(1)) * SECONDS[match.group(2) or "s"]
    if found > INTERVAL_S_MAX:
        raise ValueError(f"must be at most {INTERVAL_S_MAX // SECONDS['d']}d")
    return found
