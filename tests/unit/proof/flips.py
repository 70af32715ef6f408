"""Flips one bit of one value of a row, whatever form the value has."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from unfork.proof.rows import Rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Numbers of 256 bits; every other number has 64, the highest being its sign.
WIDE = {
    *("difficulty", "base_fee_per_gas", "value", "gas_price", "max_fee_per_gas", "amount"),
    *("max_priority_fee_per_gas", "max_fee_per_blob_gas", "chain_id", "v", "r", "s"),
    *("total_difficulty", "effective_gas_price", "blob_gas_price"),
}


def flipped(data: st.DataObject, rows: Rows, table: str, at: int, column: str) -> Rows:
    """The rows with one drawn bit of one value turned over."""
    part: Any = rows.block if table == "block" else getattr(rows, table)[at]
    changed = {**part, column: flip(data, part[column], wide=column in WIDE)}
    if table == "block":
        return replace(rows, block=changed)
    others = list(getattr(rows, table))
    others[at] = changed
    return replace(rows, **{table: others})


def flip(data: st.DataObject, value: Any, *, wide: bool) -> Any:
    """The value with one drawn bit turned over."""
    if isinstance(value, datetime):
        moment = (value - EPOCH) // timedelta(microseconds=1)
        return EPOCH + timedelta(microseconds=moment ^ (1 << data.draw(st.integers(0, 51))))
    if isinstance(value, int):
        bit = data.draw(st.integers(0, 255 if wide else 63))
        turned = value ^ (1 << bit)
        return turned - 2**64 if not wide and bit == 63 else turned
    if isinstance(value, bytes):
        bit = data.draw(st.integers(0, 8 * len(value) - 1))
        number = int.from_bytes(value, "big") ^ (1 << bit)
        return number.to_bytes(len(value), "big")
    if isinstance(value, str) and not value.startswith("0x"):
        at = data.draw(st.integers(0, len(value) - 1))
        letter = chr(ord(value[at]) ^ (1 << data.draw(st.integers(0, 6))))
        return value[:at] + letter + value[at + 1 :]
    if isinstance(value, str):
        digits = flip(data, bytes.fromhex(value[2:].rjust(len(value) // 2 * 2, "0")), wide=wide)
        return "0x" + digits.hex()
    key = data.draw(
        st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))
    )
    turned = flip(data, value[key], wide=wide)
    if isinstance(value, dict):
        return {**value, key: turned}
    return [*value[:key], turned, *value[key + 1 :]]
