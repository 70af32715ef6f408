"""Owns the expected rows of `tokens`, computed from devnet blocks and contracts in plain Python.

It goes through the chain block by block and remembers; the contracts are asked directly, and what
they say is read by rules of its own. It shares nothing with the job but what the dataset means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from unfork.devnet import contract_calls
from unfork.devnet.block import Block
from unfork.devnet.protocol import RpcError
from unfork.devnet.tree import Metadata
from unfork.testing import derived

Row = dict[str, Any]

#: What stands at an address in the state after a block, by the block's hash.
Contracts = Callable[[bytes, bytes], Metadata | None]


def tokens(blocks: Iterable[Block], contracts: Contracts) -> dict[bytes, Row]:
    """What every token says of itself, by address."""
    held: dict[bytes, Row] = {}
    for block in blocks:
        created = {
            executed.contract_address
            for executed in block.transactions
            if executed.contract_address is not None and executed.status == 1
        }
        moved: dict[bytes, str] = {}
        for transfer in derived.token_transfers([block]):
            moved.setdefault(transfer["token_address"], transfer["standard"])
        for address in created | moved.keys():
            known = held.get(address)
            is_told = known is not None and known["standard"] is not None
            if address in moved:
                if is_told and address not in created:
                    continue
            elif known is None:
                continue
            held[address] = _asked(block, address, moved.get(address), contracts)
    return held


def _asked(block: Block, address: bytes, standard: str | None, contracts: Contracts) -> Row:
    contract = contracts(address, block.hash)
    row: Row = {"address": address}
    remarks = []
    for name, data, read in (
        ("name", contract_calls.NAME, _text),
        ("symbol", contract_calls.SYMBOL, _text),
        ("decimals", contract_calls.DECIMALS, _byte),
    ):
        try:
            output = b"" if contract is None else contract_calls.output(contract, data)
            row[name], said = read(output) if output else (None, "empty")
        except RpcError:
            row[name], said = None, "reverted"
        if said:
            remarks.append(f"{name} {said}")
    return {
        **row,
        "standard": standard,
        "remarks": "; ".join(remarks) or None,
        "block_number": block.number,
        "block_hash": block.hash,
        "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
    }


def _text(output: bytes) -> tuple[str | None, str]:
    said = []
    data = output.rstrip(b"\0")
    if len(output) == 32:
        said.append("bytes32")
    else:
        length = int.from_bytes(output[32:64], "big")
        if int.from_bytes(output[:32], "big") != 32 or 64 + length > len(output):
            return None, "undecodable"
        data = output[64 : 64 + length]
    if 0 in data:
        said.append("nul")
    text = "".join(character for character in data.decode(errors="replace") if character != "\0")
    try:
        data.decode()
    except UnicodeDecodeError:
        said.append("utf8")
    return text, " ".join(said)


def _byte(output: bytes) -> tuple[int | None, str]:
    number = int.from_bytes(output, "big")
    return (number, "") if len(output) == 32 and number < 256 else (None, "undecodable")
