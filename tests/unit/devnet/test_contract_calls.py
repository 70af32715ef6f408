"""Proves what contracts answer to calls, at the block asked about and on its branch.

Method: a hand-made chain for the answers, and a seeded tree forked in the style that puts another
contract at the same address for the branches.
"""

from __future__ import annotations

import pytest

from tests.unit.devnet.asking import ask, error
from tests.unit.devnet.handmade import ALICE, BOB, TOKEN, HandmadeChain, block
from unfork.devnet import abi, contract_calls
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Metadata, Tree


@pytest.fixture
def rpc() -> Rpc:
    chain = HandmadeChain(block(None))
    chain.contracts[TOKEN] = Metadata(b"nul\0name", b"", 18, "erc20")
    chain.contracts[BOB] = Metadata(b"Art", b"ART", None, "erc721")
    return Rpc(chain)


def called(rpc: Rpc, to: bytes, function: str, arguments: bytes = b"") -> str:
    call = {"to": data(to), "data": data(abi.selector(function) + arguments)}
    answer: str = ask(rpc, "eth_call", call, "latest")
    return answer


def test_a_token_says_its_name_symbol_and_decimals(rpc: Rpc) -> None:
    assert called(rpc, TOKEN, "name()") == data(abi.text(b"nul\0name"))
    assert called(rpc, TOKEN, "symbol()") == data(abi.text(b""))
    assert called(rpc, TOKEN, "decimals()") == data(abi.word(18))


def test_what_a_contract_does_not_have_is_an_empty_answer(rpc: Rpc) -> None:
    assert called(rpc, BOB, "decimals()") == "0x"
    assert called(rpc, TOKEN, "nonsense()") == "0x"
    assert called(rpc, ALICE, "name()") == "0x"
    assert ask(rpc, "eth_call", {}) == ask(rpc, "eth_call", {"to": data(TOKEN)}) == "0x"


def test_a_collection_names_its_interface(rpc: Rpc) -> None:
    def supports(to: bytes, interface: str) -> str:
        argument = bytes.fromhex(interface).ljust(32, b"\0")
        return called(rpc, to, "supportsInterface(bytes4)", argument)

    assert supports(BOB, "80ac58cd") == data(abi.word(1))
    assert supports(BOB, "d9b67a26") == data(abi.word(0))
    assert supports(TOKEN, "80ac58cd") == "0x"


def test_code_stands_only_where_a_contract_does(rpc: Rpc) -> None:
    assert ask(rpc, "eth_getCode", data(ALICE), "latest") == "0x"
    codes = {ask(rpc, "eth_getCode", data(each)) for each in (TOKEN, BOB)}
    assert len(codes) == 2 and "0x" not in codes


def test_hostile_contracts_answer_in_ways_that_no_standard_knows() -> None:
    chain = HandmadeChain(block(None))
    rpc = Rpc(chain)

    chain.contracts[TOKEN] = Metadata(b"", b"S\0Y", 77, "erc20")
    assert error(rpc, "eth_call", {"to": data(TOKEN), "data": data(contract_calls.NAME)}) == (
        3,
        "execution reverted",
    )
    assert called(rpc, TOKEN, "symbol()") == data(b"S\0Y".ljust(32, b"\0"))
    assert called(rpc, TOKEN, "decimals()") == data(abi.word(2**256 - 1))
    chain.contracts[TOKEN] = Metadata(b"long " * 40, b"\0", 255, "erc20")
    assert called(rpc, TOKEN, "name()")[2 + 64 : 2 + 128] == "f" * 62 + "e0"
    assert called(rpc, TOKEN, "symbol()") == data(bytes(32))


def test_a_block_that_was_replaced_is_given_by_hash_unless_it_must_be_canonical() -> None:
    tree = Tree(Knobs(seed=5, density=3))
    rpc = Rpc(tree)
    tree.extend(2)
    old = data(tree.head.hash)
    tree.fork(depth=1, length=1, style=Style.REPLACED)

    assert ask(rpc, "eth_getCode", data(ALICE), {"blockHash": old, "requireCanonical": False})
    assert error(rpc, "eth_getCode", data(ALICE), {"blockHash": old, "requireCanonical": True}) == (
        -32000,
        "hash is not currently canonical",
    )
    new = {"blockHash": data(tree.head.hash), "requireCanonical": True}
    assert ask(rpc, "eth_getCode", data(ALICE), new) == "0x"


def test_the_state_of_an_unknown_block_is_an_error(rpc: Rpc) -> None:
    call = {"to": data(TOKEN)}

    assert error(rpc, "eth_call", call, "0x99") == (-32000, "header not found")
    assert error(rpc, "eth_call", call, {"blockHash": data(bytes(32))})[0] == -32000
    assert error(rpc, "eth_call", call, {})[0] == -32602
    assert error(rpc, "eth_call", "0x", "latest")[0] == -32602


def test_an_address_used_again_on_another_branch_is_another_contract() -> None:
    tree = Tree(Knobs(seed=5, density=3))
    rpc = Rpc(tree)
    while not (created := [each for each in tree.head.transactions if each.contract_address]):
        tree.extend()
    address, old = created[0].contract_address, tree.head
    assert address is not None
    movement = tree.fork(depth=1, length=1, style=Style.REDEPLOYED)

    at_old = ask(rpc, "eth_getCode", data(address), {"blockHash": data(old.hash)})
    at_new = ask(rpc, "eth_getCode", data(address), data(movement.head.hash))
    before = ask(rpc, "eth_getCode", data(address), hex(old.number - 1))

    assert at_old != at_new and "0x" not in (at_old, at_new) and before == "0x"
