"""Goal: calls are written as the ABI has it, and no answer of a stranger is fatal or a guess.

Method: calls that other programs have written; answers by hand; and any bytes at all.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unfork.datasets.dataset import Kind
from unfork.devnet import abi
from unfork.jobs import signature
from unfork.jobs.signature import BadSignature, Unfit, decode, encode, parse

ALICE = bytes.fromhex("00000000219ab540356cbb839cbe05303d7705fa")


def test_a_call_is_what_other_programs_write() -> None:
    balance = parse("balanceOf(address)(uint256)")
    assert encode(balance, [ALICE]).hex() == "70a08231" + "00" * 12 + ALICE.hex()
    # The example of the ABI's own specification.
    sam = parse("sam(bytes,bool,uint256)()")
    dave = encode(sam, [b"dave", True, 3])
    assert dave[4:].hex() == (f"{0x60:064x}{1:064x}{3:064x}{4:064x}" + b"dave".hex().ljust(64, "0"))
    assert encode(parse("f(int24,bytes3)(bool)"), [-2, b"abc"])[4:].hex() == (
        "f" * 63 + "e" + b"abc".hex().ljust(64, "0")
    )


def test_a_number_without_its_size_is_the_largest() -> None:
    assert parse("f(uint)(int)").selector == parse("f(uint256)(int256)").selector


@pytest.mark.parametrize(
    ("types", "value"),
    [("uint8", 256), ("uint8", -1), ("int8", 128), ("address", b"short"), ("bytes3", b"abcd")],
)
def test_an_argument_that_does_not_fit_is_told(types: str, value: Any) -> None:
    with pytest.raises(Unfit):
        encode(parse(f"f({types})()"), [value])


def test_returns_have_the_names_they_are_given_and_the_kinds_they_fit() -> None:
    found = parse("slot0()(uint160 price, int24 tick, bool, bytes4, string, int256, uint64)")
    assert [(one.name, one.type.kind) for one in found.returns] == [
        ("price", Kind.U256),
        ("tick", Kind.INT),
        ("value2", Kind.BOOL),
        ("value3", Kind.BYTES),
        ("value4", Kind.TEXT),
        ("value5", Kind.SIGNED),
        ("value6", Kind.U256),
    ]
    assert [one.name for one in parse(" f ( ) ( uint8 ) ").returns] == ["value"]


@pytest.mark.parametrize(
    "text",
    [
        "balanceOf",
        "balanceOf(address)",
        "f(uint256[])(uint8)",
        "f()((uint8,uint8))",
        "f()(uint7)",
        "f()(uint264)",
        "f()(bytes33)",
        "f()(bytes0)",
        "f()(int0)",
        "f()(fixed)",
        "f(text)(bool)",
        "f()(bool a, bool a)",
        "f()(bool,)",
        "f();",
    ],
)
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(BadSignature):
        parse(text)


def test_answers_decode_to_the_last_bit() -> None:
    most = 2**256 - 1
    assert decode(parse("f()(uint256)"), abi.word(most)).values == (abi.word(most),)
    assert decode(parse("f()(uint56)"), abi.word(2**56 - 1)).values == (2**56 - 1,)
    low = (-(2**255)).to_bytes(36, "big", signed=True)
    assert decode(parse("f()(int256)"), abi.word(2**255)).values == (low,)
    assert decode(parse("f()(int64)"), abi.word(most)).values == (-1,)
    assert decode(parse("f()(address, bool)"), abi.padded(ALICE) + abi.word(1)).values == (
        ALICE,
        True,
    )
    assert decode(parse("f()(string)"), abi.text("naïve 🦄".encode())).values == ("naïve 🦄",)
    assert decode(parse("f()(bytes)"), abi.text(b"\0\xff")).values == (b"\0\xff",)
    assert decode(
        parse("f()(uint8, string)"), abi.word(7) + abi.word(64) + abi.text(b"x")[32:]
    ) == (signature.Decoded((7, "x")))


@pytest.mark.parametrize(
    ("types", "output"),
    [
        ("uint8", abi.word(256)),
        ("int8", abi.word(128)),
        ("bool", abi.word(2)),
        ("address", abi.word(2**160)),
        ("bytes4", abi.word(1)),
        ("uint8", b"\1"),
        ("string", abi.word(7)),
        ("string", abi.word(32) + abi.word(2**256 - 1) + b"abc"),
        ("string", abi.word(2**256 - 1) + abi.word(3) + b"abc"),
        ("string", abi.word(32) + abi.word(4) + b"abc"),
        ("bool,uint8", abi.word(1)),
    ],
)
def test_what_is_not_what_the_signature_says_is_nothing(types: str, output: bytes) -> None:
    found = decode(parse(f"f()({types})"), output)
    assert set(found.values) == {None} and found.remarks == ("undecodable",)


def test_a_text_loses_what_no_text_can_hold_and_says_so() -> None:
    text = parse("name()(text)")
    assert decode(text, abi.text(b"nul\0name\0")) == signature.Decoded(("nulname",), ("nul",))
    assert decode(text, abi.text(b"\xff\xfeA")) == signature.Decoded(("��A",), ("utf8",))
    assert decode(text, b"MKR".ljust(32, b"\0")) == signature.Decoded(("MKR",), ("bytes32",))
    assert decode(text, b"S\0Y".ljust(32, b"\0")) == signature.Decoded(("SY",), ("bytes32", "nul"))
    assert decode(text, bytes(32)) == signature.Decoded(("",), ("bytes32",))
    assert decode(text, abi.text(b"")) == signature.Decoded(("",))
    assert decode(text, b"") == signature.Decoded((None,), ("empty",))


@given(st.binary(max_size=200))
def test_no_answer_is_fatal(output: bytes) -> None:
    for types in ("text", "string,bytes", "uint8", "int256,bool", "address,bytes7"):
        found = decode(parse(f"f()({types})"), output)
        for value in found.values:
            assert value is None or not isinstance(value, str) or "\0" not in value


@given(st.text(), st.integers(-(2**255), 2**255 - 1), st.binary(max_size=80))
def test_what_is_encoded_decodes_to_itself(text: str, number: int, data: bytes) -> None:
    call = encode(parse("f(string,int256,bytes)()"), [text, number, data])[4:]
    found = decode(parse("f()(string,int256,bytes)"), call).values
    assert found == (text.replace("\0", ""), number.to_bytes(36, "big", signed=True), data)
