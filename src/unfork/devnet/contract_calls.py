"""Owns what contracts of the devnet answer to a call, and what stands for their code.

There is no machine behind it: a contract knows its name, symbol and decimals, which interfaces
it has, and a balance for everybody. Anything else gets the empty answer that an address without
code gives.

Hostile contracts also answer in ways that no standard knows and real ones have: in the manner of a
bytes32, with a length that is no length, with more decimals than a byte holds, or not at all. What
one is called decides how it answers, so its code and its address stay what they are.
"""

from __future__ import annotations

from unfork.devnet import abi
from unfork.devnet.protocol import RpcError
from unfork.devnet.tree import Metadata
from unfork.proof.keccak import keccak256

#: The code of a revert.
REVERTED = 3

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
        return _name(contract.name)
    if selector == SYMBOL:
        return _symbol(contract.symbol)
    if selector == DECIMALS and contract.decimals is not None:
        return abi.word(_ODD_DECIMALS.get(contract.decimals, contract.decimals))
    if selector == abi.CALL_BALANCE and contract.standard == "erc20":
        # There is no ledger: a number that depends on whose balance of what it is will do.
        return abi.word(int.from_bytes(keccak256(contract.name + data)[:24], "big"))
    interfaces = _INTERFACES.get(contract.standard)
    if selector == SUPPORTS_INTERFACE and interfaces is not None:
        return abi.word(data[4:8] in interfaces)
    return b""


def _name(name: bytes) -> bytes:
    if not name:
        raise RpcError(REVERTED, "execution reverted")
    if name.startswith(b"long "):
        # It says that it is as long as all memory there is.
        return abi.word(32) + abi.word(2**256 - 32) + name
    return abi.text(name)


def _symbol(symbol: bytes) -> bytes:
    return symbol.ljust(32, b"\0") if symbol in _AS_WORDS else abi.text(symbol)


#: Symbols that come as a bytes32, which some of the first tokens return.
_AS_WORDS = (b"\0", b"S\0Y")
#: What some say of their decimals.
_ODD_DECIMALS = {77: 2**256 - 1}


def code(contract: Metadata) -> bytes:
    """Bytes that stand for a contract's code: never empty, and different for different ones."""
    return b"\x60\x80\x60\x40" + contract.standard.encode() + contract.name + contract.symbol
