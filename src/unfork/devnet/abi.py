"""Owns the little of the contract ABI that devnet transactions speak: words, selectors, topics."""

from __future__ import annotations

from collections.abc import Sequence

from unfork.proof.keccak import keccak256

_ZEROS = bytes(12)


def word(number: int) -> bytes:
    """A number as 32 bytes."""
    return number.to_bytes(32, "big")


def padded(address: bytes) -> bytes:
    """An address as 32 bytes."""
    return _ZEROS + address


def numbers(values: Sequence[int]) -> bytes:
    """The tail of a list of numbers: its length, then its items."""
    return word(len(values)) + b"".join(map(word, values))


def text(value: bytes) -> bytes:
    """A lone string argument, filled up to whole words."""
    return word(32) + word(len(value)) + value + bytes(-len(value) % 32)


def topic(event: str) -> bytes:
    """What the first topic of an event is."""
    return keccak256(event.encode())


def selector(function: str) -> bytes:
    """What the input of a function begins with."""
    return keccak256(function.encode())[:4]


TRANSFER = topic("Transfer(address,address,uint256)")
APPROVAL = topic("Approval(address,address,uint256)")
APPROVAL_FOR_ALL = topic("ApprovalForAll(address,address,bool)")
TRANSFER_SINGLE = topic("TransferSingle(address,address,address,uint256,uint256)")
TRANSFER_BATCH = topic("TransferBatch(address,address,address,uint256[],uint256[])")
NOTE = topic("Note(string)")

CALL_TRANSFER = selector("transfer(address,uint256)")
CALL_TRANSFER_FROM = selector("transferFrom(address,address,uint256)")
CALL_APPROVE = selector("approve(address,uint256)")
CALL_APPROVE_ALL = selector("setApprovalForAll(address,bool)")
CALL_SINGLE = selector("safeTransferFrom(address,address,uint256,uint256,bytes)")
CALL_BATCH = selector("safeBatchTransferFrom(address,address,uint256[],uint256[],bytes)")
CALL_BALANCE = selector("balanceOf(address)")
CALL_SWAP = selector("swap(uint256,address)")
CALL_NOTE = selector("note(string)")
