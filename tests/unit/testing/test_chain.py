"""Goal: a few lines of text are the blocks that their author means, or are refused by line.

Method: texts are read and compared with plain values; what is encoded is compared with words
written out by hand.
"""

from __future__ import annotations

import pytest

from unfork.proof.keccak import keccak256
from unfork.testing import Unreadable, chain, events, oracle, script

TRANSFER = keccak256(b"Transfer(address,address,uint256)")


def word(number: int) -> bytes:
    return (number % 2**256).to_bytes(32, "big")


def test_a_transfer_is_a_log_of_the_token_and_a_transaction_of_who_sends_it() -> None:
    drawn = chain("1: transfer alice -> bob 5 DAI")
    rows = oracle.rows_of(drawn.blocks)
    (log,) = rows["logs"]
    alice, bob, dai = (bytes.fromhex(drawn.address(name)[2:]) for name in ("alice", "bob", "DAI"))
    assert log["address"] == dai and log["data"] == word(5)
    assert (log["topic0"], log["topic1"], log["topic2"], log["topic3"]) == (
        TRANSFER,
        bytes(12) + alice,
        bytes(12) + bob,
        None,
    )
    (transaction,) = rows["transactions"]
    assert (transaction["from_address"], transaction["to_address"]) == (alice, dai)
    assert "0x" + rows["blocks"][0]["hash"].hex() == drawn.hash(1)


def test_every_statement_says_what_it_says() -> None:
    drawn = chain(
        """
        7: transfer nobody -> bob PUNK #2^8-1     # a mint of one
           send alice → bob 1.5 ether; call bob -> ROUTER 0x12345678 from carol
           approve alice -> bob 0xff of DAI & transfer alice -> bob 1_000 DAI
           failed transfer alice -> bob 7 DAI
           log PAIR [0x01, 0x02] 0xdead
        """
    )
    rows = oracle.rows_of(drawn.blocks)
    minted, approved, moved, raw = rows["logs"]
    assert minted["topic1"] == bytes(32) and minted["topic3"] == word(255) and not minted["data"]
    assert approved["data"] == word(255) and moved["data"] == word(1000)
    assert approved["transaction_index"] == moved["transaction_index"] == 3
    assert (raw["topic0"], raw["topic1"], raw["data"]) == (word(1), word(2), b"\xde\xad")
    assert [log["log_index"] for log in rows["logs"]] == [0, 1, 2, 3]
    sent, called = rows["transactions"][1:3]
    assert sent["value"] == 15 * 10**17 and called["input"] == bytes.fromhex("12345678")
    assert called["from_address"] == bytes.fromhex(drawn.address("carol")[2:])
    assert [row["status"] for row in rows["transactions"]] == [1, 1, 1, 1, 0, 1]
    assert drawn.named(drawn.address("PUNK")) == "PUNK" and drawn.named(5) == 5


def test_a_number_that_was_there_is_a_fork_and_numbers_left_out_are_empty_blocks() -> None:
    drawn = chain(
        """
        1: transfer alice -> bob 5 DAI
        4: transfer bob -> carol 3 DAI
        3': transfer bob -> carol 3 DAI
        5':
        """
    )
    first, second = drawn.moves
    assert [block.number for block in first.blocks] == [1, 2, 3, 4] and first.ancestor is None
    assert [block.number for block in second.blocks] == [3, 4, 5]
    assert second.ancestor == first.blocks[1].ref
    assert [block.number for block in drawn.blocks] == [1, 2, 3, 4, 5]
    assert drawn.hash(3) != drawn.hash("3'")
    moved = [block.transactions[0].hash for block in (first.blocks[3], second.blocks[0])]
    assert moved[0] == moved[1], "a transaction that a fork moves is the same transaction"
    again = chain("1: send alice -> bob 1; send alice -> bob 1")
    one, other = again.blocks[0].transactions
    assert one.hash != other.hash, "said twice, it happens twice"


def test_a_fork_of_everything_begins_anew_at_the_first_number() -> None:
    _, second = chain("3: send alice -> bob 1\n4:\n3':").moves
    assert second.is_restart and second.ancestor is None


def test_blocks_are_made_twelve_seconds_apart_unless_they_say_when() -> None:
    drawn = chain("1:\n2 @ 2024-02-28 23:59: send alice -> bob 1\n3:\n4 @ 2024-03-01:")
    assert [str(drawn.time(number)) for number in range(1, 5)] == [
        "2024-01-01 00:00:12+00:00",
        "2024-02-28 23:59:00+00:00",
        "2024-02-28 23:59:12+00:00",
        "2024-03-01 00:00:00+00:00",
    ]


def test_events_of_an_abi_are_called_by_name_or_place_with_fixed_and_dynamic_values() -> None:
    abi = [
        "event Paid(address indexed to, uint amount, string note)",
        {
            "type": "event",
            "name": "Many",
            "anonymous": True,
            "inputs": [
                {
                    "name": "pairs",
                    "type": "tuple[]",
                    "indexed": False,
                    "components": [
                        {"name": "who", "type": "address"},
                        {"name": "data", "type": "bytes"},
                    ],
                },
                {"name": "note", "type": "string", "indexed": True},
                {"name": "fixed", "type": "int16[2]", "indexed": False},
            ],
        },
        {"type": "function", "name": "ignored"},
    ]
    drawn = chain(
        """
        1: Paid(to=alice, note="for; you", amount=2^256-1) by SHOP from bob
        2: Many([(0x1, 0xabcd)], hello, [-1, 2]) by SHOP
        """,
        abi=abi,
    )
    paid, many = oracle.rows_of(drawn.blocks)["logs"]
    assert paid["topic0"] == keccak256(b"Paid(address,uint256,string)")
    assert paid["data"] == word(-1) + word(64) + word(8) + b"for; you".ljust(32, b"\0")
    assert many["topic0"] == keccak256(b"hello") and many["topic1"] is None
    assert many["data"] == b"".join(
        [
            *(word(96), word(-1), word(2)),
            *(word(1), word(32), word(1), word(64), word(2)),
            b"\xab\xcd".ljust(32, b"\0"),
        ]
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the text holds no block"),
        ("transfer alice -> bob 5 DAI", "a block begins with its number"),
        ("1: transfer alice bob 5 DAI", "`->` is missing"),
        ("1: transfer alice -> bob DAI", "`DAI` is no number"),
        ("1: transfer alice -> bob 1.5 DAI", "`1.5` is no whole number"),
        ("1: transfer alice -> bob -1 DAI", "-1 is no uint256"),
        ("1: transfer alice -> bob 5", "a token is missing at the end"),
        ("1: sned alice -> bob 5", "`sned` is no statement"),
        ("1: send alice -> bob 5 ether now", "`now` is too much"),
        ("1: Paid(alice) by SHOP", "no event `Paid` takes 1 values; known: none"),
        ("1:\n1:", "block 1 is there already"),
        ("2:\n1':", "lies below block 2"),
        ("1 @ 2024-05-01:\n2 @ 2024-04-30:", "older than the one before it"),
    ],
)
def test_what_means_nothing_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(Unreadable, match=r".") as caught:
        chain(text)
    assert told in str(caught.value)
    if text.startswith("1: "):
        assert str(caught.value).startswith("line 1 (1: ")


def test_addresses_are_the_same_everywhere_and_can_be_given() -> None:
    dai = "0x6b175474e89094c44da98b954eedeac495271d0f"
    drawn = chain("1: transfer alice -> 0xb 5 DAI", names={"DAI": dai})
    assert drawn.address("DAI") == dai
    assert drawn.address("0xb") == "0x" + "0" * 39 + "b"
    assert drawn.address("alice") == chain("1:").address("alice")
    with pytest.raises(ValueError, match="no address"):
        chain("1:", names={"DAI": "0x12"})


def test_signatures_of_events_are_read_as_solidity_writes_them() -> None:
    (event,) = events.known("Swap(address indexed, uint256[] amounts, (uint,bool)[2] x) anonymous;")
    assert event.signature == "Swap(address,uint256[],(uint256,bool)[2])"
    assert event.is_anonymous
    assert [one.is_indexed for one in event.arguments] == [True, False, False]
    with pytest.raises(ValueError, match="no signature"):
        events.known(["Swap"])


def test_numbers_are_exact() -> None:
    assert script.number("2^256-1") == 2**256 - 1
    assert script.number("1.25e18") == 125 * 10**16
    assert script.number("-2^255") == -(2**255)
