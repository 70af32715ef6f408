"""Assembles the few contracts that the tests put on a real node.

An emitter logs whatever it is called with, under as many topics as it was built for, so the same
call leaves other logs after the address was given to another emitter. A relay calls a contract and
logs how that went, so that calls within calls, and failures within successes, exist.
"""

from __future__ import annotations

STOP, ISZERO, CALLVALUE, CALLDATALOAD, CALLDATASIZE = 0x00, 0x15, 0x34, 0x35, 0x36
CALLDATACOPY, CODECOPY, JUMPI, GAS, JUMPDEST = 0x37, 0x39, 0x57, 0x5A, 0x5B
SUB, POP, PUSH1, DUP1, LOG0, CALL, RETURN, REVERT = 0x03, 0x50, 0x60, 0x80, 0xA0, 0xF1, 0xF3, 0xFD


def emitter(*, topics: int, times: int = 1) -> bytes:
    """Logs the call's data `times` times, its first words as topics; reverts without data."""
    assert 0 <= topics <= 4
    copy_data = [CALLDATASIZE, PUSH1, 0, PUSH1, 0, CALLDATACOPY]
    after_guard = len(copy_data) + 9
    guard = [CALLDATASIZE, PUSH1, after_guard, JUMPI, PUSH1, 0, PUSH1, 0, REVERT, JUMPDEST]
    words = [part for i in reversed(range(topics)) for part in (PUSH1, 32 * i, CALLDATALOAD)]
    emit = [*words, CALLDATASIZE, PUSH1, 0, LOG0 + topics]
    return bytes([*copy_data, *guard, *emit * times, STOP])


def relay() -> bytes:
    """Calls the address in the first word with the rest of the data, logs whether it succeeded."""
    rest = [PUSH1, 32, CALLDATASIZE, SUB]
    copy_rest = [*rest, PUSH1, 32, PUSH1, 0, CALLDATACOPY]
    call = [PUSH1, 0, PUSH1, 0, *rest, PUSH1, 0, CALLVALUE, PUSH1, 0, CALLDATALOAD, GAS, CALL]
    return bytes([*copy_rest, *call, PUSH1, 0, PUSH1, 0, LOG0 + 1, STOP])


def creation(runtime: bytes, *, logs: bool = False) -> bytes:
    """Init code that leaves `runtime` behind, after a log of it where asked."""
    assert len(runtime) < 256
    speak = [PUSH1, len(runtime), DUP1, PUSH1, 0, LOG0 + 1] if logs else []
    offset = 11 + len(speak)
    copy_code = [PUSH1, len(runtime), DUP1, PUSH1, offset, PUSH1, 0, CODECOPY]
    return bytes([*copy_code, *speak, PUSH1, 0, RETURN]) + runtime


def refusal() -> bytes:
    """Init code that fails."""
    return bytes([PUSH1, 0, PUSH1, 0, REVERT])
