"""Owns what contracts of the devnet answer to a call, and what stands for their code.

There is no machine behind it: a contract knows its name, symbol and decimals and which interfaces
it has. Anything else gets the empty answer that an address without code gives.
"""

from __future__ import annotations

from unfork.devnet import abi
from unfork.devnet.tree import Metadata

NAME = abi.selector("name()")
SYMBOL = abi.selector("symbol()")
DECIMALS = abi.selector("decimals()")
SUPPORTS_INTERFACE = abi.selector("supportsInterface(bytes4)")

#: Interfaces by standard, as ERC-165 names them.
_INTERFACES = {
    "erc721": frozenset({bytes.fromhex("01ffc9a7"), bytes.fromhex("80ac58cd")}),
    "erc1155": frozenset({bytes.fromhex("01ffc9a7"), bytes.fromhex("d9b67a26")}),
}


def output(contract: Metadata, data: bytes) -> bytes:
    """What a call of a contract returns."""
    selector = data[:4]
    if selector == NAME:
        return abi.text(contract.name)
    if selector == SYMBOL:
        return abi.text(contract.symbol)
    if selector == DECIMALS and contract.decimals is not None:
        return abi.word(contract.decimals)
    interfaces = _INTERFACES.get(contract.standard)
    if selector == SUPPORTS_INTERFACE and interfaces is not None:
        return abi.word(data[4:8] in interfaces)
    return b""


def code(contract: Metadata) -> bytes:
    """Bytes that stand for a contract's code: never empty, and different for different ones."""
    return b"\x60\x80\x60\x40" + contract.standard.encode() + contract.name + contract.symbol
