"""Owns the envelope of JSON-RPC: error codes, how parameters are read, what goes back.

The texts are geth's where it has one, since clients read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_MISSING = -32601
INVALID_PARAMS = -32602
SERVER_ERROR = -32000

#: Names that stand for a block.
TAGS = frozenset({"latest", "safe", "finalized", "earliest", "pending"})


class RpcError(Exception):
    """An error that goes back to the caller as such."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What an HTTP request gets back."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The connection ends without an answer."""


#: An answer in pieces: a large result is copied once, when everything is joined at last.
Pieces = tuple[bytes, ...]


def result(id: Any, value: bytes) -> Pieces:
    """The answer to one call; `value` is JSON already."""
    return (b'{"jsonrpc":"2.0","id":', orjson.dumps(id), b',"result":', value, b"}")


def failure(id: Any, code: int, message: str) -> Pieces:
    """The error that one call gets."""
    error = orjson.dumps({"code": code, "message": message})
    return (b'{"jsonrpc":"2.0","id":', orjson.dumps(id), b',"error":', error, b"}")


def batch(answers: list[Pieces]) -> Pieces:
    """The answers to a batch."""
    pieces = [piece for answer in answers for piece in (b",", *answer)]
    return (b"[", *pieces[1:], b"]")


def read_number(value: Any, *, argument: int = 0) -> int:
    """A quantity."""
    text = _hex(value, argument)
    if not text:
        raise _invalid(argument, 'hex string "0x"')
    if text[0] == "0" and len(text) > 1:
        raise _invalid(argument, "hex number with leading zero digits")
    try:
        return int(text, 16)
    except ValueError:
        raise _invalid(argument, "invalid hex string") from None


def read_data(value: Any, *, size: int | None = None, argument: int = 0) -> bytes:
    """Bytes, of one size where that is fixed."""
    text = _hex(value, argument)
    try:
        found = bytes.fromhex(text)
    except ValueError:
        raise _invalid(argument, "invalid hex string") from None
    if size is not None and len(found) != size:
        raise _invalid(argument, f"hex string has length {len(text)}, want {2 * size}")
    return found


def read_block_name(value: Any, *, argument: int = 0) -> int | str:
    """A block's number, or the tag that stands for it."""
    if isinstance(value, str) and value in TAGS:
        return value
    return read_number(value, argument=argument)


def is_hash(name: Any) -> bool:
    """Whether a block is named by its hash: as a string, or in an object."""
    if isinstance(name, dict):
        return "blockHash" in name
    return isinstance(name, str) and len(name) == 66


def _hex(value: Any, argument: int) -> str:
    if not isinstance(value, str):
        raise _invalid(argument, "json: cannot unmarshal non-string into a hex string")
    if not value:
        raise _invalid(argument, "empty hex string")
    if value[:2] not in ("0x", "0X"):
        raise _invalid(argument, "hex string without 0x prefix")
    # int() and fromhex() are laxer than a node: they pass blanks and underscores.
    if not all(digit in _DIGITS for digit in value[2:]):
        raise _invalid(argument, "invalid hex string")
    return value[2:]


_DIGITS = frozenset("0123456789abcdefABCDEF")


def _invalid(argument: int, reason: str) -> RpcError:
    return RpcError(INVALID_PARAMS, f"invalid argument {argument}: {reason}")
