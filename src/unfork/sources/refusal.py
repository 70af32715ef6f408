"""Owns what a node's refusal means: HTTP statuses, JSON-RPC codes and the words providers use.

Codes alone say little, since providers share them out differently: -32005 is a rate limit for one
and a result limit for another, and limits come as -32000, -32600 and -32602 as well. So the words
are read first and the code decides only where they say nothing.

Four meanings are told apart: ask for less (RangeTooLarge), ask later (RateLimited), ask differently
(MethodMissing), and that the thing asked for is not there, which is an answer and not an error.
Everything else is SourceUnavailable: worth another try.

A call of a contract knows two more. That the contract refused (Reverted) is its answer, whatever
words it chose for it, so this is looked at first. And a node may have thrown the state away that is
asked for (StateMissing), while it still has the block.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Mapping
from typing import Any

from unfork.errors import (
    MethodMissing,
    RangeTooLarge,
    RateLimited,
    Reverted,
    SourceUnavailable,
    StateMissing,
    UnforkError,
)

#: An hour: a longer pause asked for by an endpoint is taken as a mistake of its clock.
RETRY_AFTER_S_MAX = 3600.0

#: Limits on blocks asked for or results returned, as geth, erigon, nethermind, besu, reth and the
#: large providers word them.
_LIMIT = re.compile(
    r"returned more than|more than [\d,]+ (results|logs|events)|too many (results|logs|blocks)"
    r"|block range|range (is )?too|range limit|exceeds? .{0,20}range|range .{0,40}exceed"
    r"|ranges? over|max(imum)? .{0,30}(range|blocks|results|logs)"
    r"|limited to (a )?[\d,.]+k? ?block|up to (a )?[\d,.]+k? ?block"
    r"|response size|response (is )?too (big|large)|result (set )?(is )?too (big|large)"
    r"|payload too large|body too large|query (timeout|exceeds)|exceeds? .{0,20}limit of \d+"
    r"|matched by query exceeds|reduce .{0,30}(range|query)"
    r"|query .{0,20}too (large|many|expensive)|limited to .{0,20}range",
    re.IGNORECASE,
)
#: Limits on the answer as a whole, which a batch of any method may meet.
_RESPONSE = re.compile(
    r"response size|response (is )?too (big|large)|backend response", re.IGNORECASE
)
_RATE = re.compile(
    r"rate.?limit|too many requests|request rate|requests? per|throughput|capacity"
    r"|compute units|daily (request|limit)|quota|throttl|slow down",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"method .{0,60}(not|unsupported|disabled|doesn't|does not)|unsupported method"
    r"|not (supported|implemented|available|whitelisted|allowed|enabled)|unknown method",
    re.IGNORECASE,
)
_BATCH = re.compile(r"batch", re.IGNORECASE)
_ABSENT = re.compile(
    r"(unknown|missing) (block|header)"
    r"|\b(block|header|hash|receipts?)\b.{0,40} not (be )?(found|exist)"
    r"|(block|header) not (yet )?(available|known)|could not find block|not finalized"
    r"|(safe|finalized) block not|resource not found",
    re.IGNORECASE,
)
#: The contract's own doing, as geth, erigon, nethermind, besu, reth, anvil and hardhat word it.
_REVERTED = re.compile(
    r"revert|vm (execution|exception)|evm error|(invalid|bad|undefined) (opcode|instruction|jump)"
    r"|bad jump|out of gas|outofgas|gas uint64 overflow|stack (under|over)flow|stack limit reached"
    r"|max call depth|write protection|return data out of bounds|insufficient balance for transfer"
    r"|contract address collision|max (init)?code size",
    re.IGNORECASE,
)
#: The code that EIP-3 (of ethereum/execution-apis) gives to a revert.
_REVERT_CODE = 3
#: State that was pruned, as the same nodes and the large providers word it.
_STATELESS = re.compile(
    r"missing trie node|state .{0,80}(not available|unavailable|not found|pruned|is missing)"
    r"|(historical|required) state|no state (available|found)|pruned|archive"
    r"|(history|state) (is )?(too old|beyond)|world state unavailable|older than .{0,40}blocks"
    r"|distance to target block exceeds",
    re.IGNORECASE,
)
#: Methods that look into the state after a block.
_OF_STATE = frozenset({"eth_call", "eth_getCode"})
_RATE_CODES = frozenset({429, -32029, -32097, -32016})
_MISSING_CODES = frozenset({-32601, -32004})
#: Methods whose answer grows with what is asked for.
_SIZEABLE = frozenset({"eth_getLogs", "trace_block", "debug_traceBlockByHash"})


def of_error(method: str, code: Any, message: Any, data: Any = None) -> UnforkError | None:
    """What a JSON-RPC error means; None where it says that the thing asked for is not there."""
    text = f"{message} {data if isinstance(data, str | dict) else ''}"
    told = f"{method} was refused: {code} {str(message)[:200]}"
    fields = {"method": method, "rpc_code": code}
    if method == "eth_call" and (code == _REVERT_CODE or _REVERTED.search(str(message))):
        return Reverted(told, **fields)
    if method in _OF_STATE and _STATELESS.search(text):
        return StateMissing(told, **fields)
    if code in _MISSING_CODES:
        return MethodMissing(told, **fields)
    if _ABSENT.search(text):
        return None
    if (method in _SIZEABLE and _LIMIT.search(text)) or _RESPONSE.search(text):
        return RangeTooLarge(told, **fields)
    if code in _RATE_CODES or _RATE.search(text):
        return RateLimited(told, **fields)
    if code == -32005:
        return (RangeTooLarge if method in _SIZEABLE else RateLimited)(told, **fields)
    if _MISSING.search(text) or code == -32602:
        return MethodMissing(told, **fields)
    return SourceUnavailable(told, **fields)


def of_status(status: int, headers: Mapping[str, str], body: bytes) -> UnforkError | None:
    """What an HTTP status means; None where the body is worth reading."""
    if status == 200:
        return None
    told = f"answered with HTTP status {status}"
    if status == 429 or (status == 503 and _header(headers, "retry-after") is not None):
        return RateLimited(told, retry_after_s=retry_after(headers), status=status)
    if status == 413:
        return RangeTooLarge(told, status=status)
    if status in (401, 403):
        return SourceUnavailable(f"{told}: check the key in its URL", status=status)
    # Some nodes send JSON-RPC errors with a status of 400 or 500: the body says more.
    if status in (400, 500) and b'"jsonrpc"' in body[:4096]:
        return None
    return SourceUnavailable(told, status=status)


def refuses_batches(code: Any, message: Any) -> bool:
    """Whether a single error in reply to a batch is about the batch as such."""
    return code in (-32600, -32700, -32601, -32602) or bool(_BATCH.search(str(message)))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, given as a number or as a date."""
    text = _header(headers, "retry-after")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        moment = _moment(text)
        if moment is None:
            return None
        # The endpoint's own clock is the one its date was made with.
        now = _moment(_header(headers, "date"))
        seconds = moment - (time.time() if now is None else now)
    return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError):
        return None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """A header by its name in any case: not every wire keeps headers in a case-blind mapping."""
    for key, value in headers.items():
        if key.lower() == name:
            return value
    return None
