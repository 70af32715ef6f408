"""Owns the call trees of transactions: drawn as nested frames, handed on as a flat list.

Gas is plausible and no more: a call gets all but a sixty-fourth of what its caller has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from unfork.devnet.block import Call

REVERTED = "Reverted"
OUT_OF_GAS = "Out of gas"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One call with the calls it makes."""

    #: "call", "create" or "suicide".
    type: str = "call"
    #: "call", "delegatecall" or "staticcall"; None for create and suicide.
    call_type: str | None = "call"
    sender: bytes
    #: Called, created or refunded address; None where a creation failed.
    to: bytes | None
    value: int = 0
    input: bytes = b""
    output: bytes = b""
    #: None where the call took effect.
    error: str | None = None
    children: tuple[Frame, ...] = ()


def failed(frame: Frame, error: str) -> Frame:
    """The same call, failing at its end: what its children did is undone with it."""
    return Frame(
        type=frame.type,
        call_type=frame.call_type,
        sender=frame.sender,
        to=None if frame.type == "create" else frame.to,
        value=frame.value,
        input=frame.input,
        error=error,
        children=frame.children,
    )


def flatten(frame: Frame, *, gas: int, gas_used: int) -> tuple[Call, ...]:
    """The tree depth first, the outermost call with the gas given."""
    calls: list[Call] = []
    _append(calls, frame, (), gas, gas_used)
    return tuple(calls)


def undone(flat: tuple[Call, ...]) -> tuple[Call, ...]:
    """The calls of a transaction that now fails: the outermost one reverts at its end."""
    outermost = flat[0]
    reverted = replace(
        outermost,
        to=None if outermost.type == "create" else outermost.to,
        output=b"",
        error=REVERTED,
    )
    return (reverted, *flat[1:])


def _append(
    calls: list[Call], frame: Frame, path: tuple[int, ...], gas: int, gas_used: int
) -> None:
    is_suicide = frame.type == "suicide"
    calls.append(
        Call(
            path=path,
            type=frame.type,
            call_type=frame.call_type,
            sender=frame.sender,
            to=frame.to,
            value=frame.value,
            gas=0 if is_suicide else gas,
            gas_used=0 if is_suicide else gas_used,
            input=frame.input,
            output=frame.output,
            subtraces=len(frame.children),
            error=frame.error,
        )
    )
    passed_on = gas - gas // 64
    share = gas_used // (len(frame.children) + 1)
    for position, child in enumerate(frame.children):
        _append(calls, child, (*path, position), passed_on, share)
