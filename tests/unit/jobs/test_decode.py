"""Goal: data of any ABI is read as eth-abi reads it, and never more, nor with another failure.

Method: hypothesis draws types and values, eth-abi encodes them, ours and eth-abi read them; then
the same with bytes changed, cut off and added. Data made by hand has offsets that lead nowhere,
back, or all to one place.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from eth_abi import decode, encode
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import decoding
from tests.decoding import Row, argument
from unfork.datasets.dataset import Kind
from unfork.jobs.decode import abi, columns, dynamic, types
from unfork.jobs.decode.dynamic import Part
from unfork.jobs.decode.types import AbiInvalid

WORD = 32


def words() -> st.SearchStrategy[str]:
    numbers = st.integers(1, 32).map(lambda n: 8 * n)
    return st.one_of(
        st.just("address"),
        st.just("bool"),
        numbers.map("uint{}".format),
        numbers.map("int{}".format),
        st.integers(1, 32).map("bytes{}".format),
    )


@st.composite
def entries(draw: st.DrawFn, depth: int = 3) -> Row:
    """An input of an ABI: words, strings, bytes, and arrays and tuples of inputs."""
    name = draw(st.sampled_from(["", "a", "b", "camelCase", "naïve"]))
    form = draw(st.sampled_from(["word", "bytes", "string", "array", "tuple"][: 5 if depth else 3]))
    if form == "word":
        return argument(name, draw(words()))
    if form in ("bytes", "string"):
        return argument(name, form)
    if form == "array":
        inner = draw(entries(depth=depth - 1))
        suffix = draw(st.sampled_from(["[]", "[]", "[1]", "[3]"]))
        return {**inner, "name": name, "type": inner["type"] + suffix}
    parts = draw(st.lists(entries(depth=depth - 1), min_size=1, max_size=3))
    return argument(name, "tuple", *parts)


def values(entry: Row) -> st.SearchStrategy[Any]:
    """Values of an input, as eth-abi takes them for `readable` types."""
    type_ = entry["type"]
    if type_.endswith("]"):
        inner, _, length = type_[:-1].rpartition("[")
        item = values({**entry, "type": inner})
        sizes = {"min_size": int(length or 0), "max_size": int(length or 4)}
        return st.lists(item, **sizes)
    if type_ == "tuple":
        return st.tuples(*(values(each) for each in entry["components"]))
    if type_.startswith("uint"):
        return st.integers(0, 2 ** int(type_[4:]) - 1)
    if type_.startswith("int"):
        bits = int(type_[3:])
        return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if type_ == "bool":
        return st.booleans()
    if type_ == "address":
        return st.binary(min_size=20, max_size=20).map(lambda one: f"0x{one.hex()}")
    if type_ == "bytes":
        return st.binary(max_size=70)
    if type_ == "string":
        return st.one_of(st.text(max_size=40).map(str.encode), st.binary(max_size=40))
    size = int(type_[5:])
    return st.binary(min_size=size, max_size=size)


@st.composite
def logged(draw: st.DrawFn) -> tuple[list[Row], bytes]:
    """Inputs, and data that holds a value of each."""
    inputs = draw(st.lists(entries(), min_size=1, max_size=4))
    held = [draw(values(each)) for each in inputs]
    return inputs, encode([decoding.readable(each) for each in inputs], held)


def ours(inputs: list[Row], *data: bytes) -> list[list[Any] | str]:
    """What we read of some data, a text that says why where it is refused."""
    read = [types.read(each) for each in inputs]
    heads = sum(each.head for each in read)
    parts, at = [], 0
    for index, type_ in enumerate(read):
        if not type_.is_word:
            parts.append(Part(name=f"arg{index}", type=type_, at=at, heads=heads))
        at += type_.head
    found: list[list[Any] | str] = []
    for row in dynamic.decode(parts, pa.array(data, pa.binary())).to_pylist():
        error = row.pop("error")
        held = zip(parts, row.values(), strict=True)
        found.append(error if error is not None else [plain(part, one) for part, one in held])
    return found


def plain(part: Part, value: Any) -> Any:
    is_json = columns.kind(part.type) is Kind.JSON
    return json.loads(value) if is_json else value


def theirs(inputs: list[Row], data: bytes) -> list[Any] | None:
    """What eth-abi reads of it: the same values, None where it refuses one."""
    try:
        found = decode([decoding.readable(each) for each in inputs], data)
    except decoding.FAILURES:
        return None
    told = zip(inputs, found, strict=True)
    return [decoding.column(each, one) for each, one in told if not types.read(each).is_word]


@settings(max_examples=300, deadline=None)
@given(logged())
def test_values_of_every_type_are_read_as_eth_abi_reads_them(held: tuple[list[Row], bytes]) -> None:
    inputs, data = held
    assert ours(inputs, data, data + b"more", data) == [theirs(inputs, data)] * 3


@settings(max_examples=400, deadline=None)
@given(logged(), st.data())
def test_data_that_was_changed_is_read_as_eth_abi_reads_it_or_refused(
    held: tuple[list[Row], bytes], draw: st.DataObject
) -> None:
    inputs, data = held
    # Words in place are SQL's to check.
    assume(not any(types.read(each).is_word for each in inputs))
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(0, 4))):
        assume(changed)
        at = draw.draw(st.integers(0, len(changed) - 1))
        # Offsets and lengths stand at the ends of words.
        at = at if draw.draw(st.booleans()) else min(at | 31, len(changed) - 1)
        changed[at] = draw.draw(st.sampled_from([0, 1, 2, 31, 32, 64, 96, 128, 255]))
    cut = draw.draw(st.one_of(st.just(len(changed)), st.integers(0, len(changed))))
    found, wanted = ours(inputs, bytes(changed[:cut]))[0], theirs(inputs, bytes(changed[:cut]))
    if wanted is None:
        assert isinstance(found, str)
    elif isinstance(found, str):
        # eth-abi counts less of what stands in place, and reads what overlaps without a bound.
        assert "leads back into the offsets" in found or "overlap" in found
    else:
        assert found == wanted


def number(value: int) -> bytes:
    return value.to_bytes(WORD, "big")


ONE = number(32)

#: Type, data, and a word of why it is refused.
MALFORMED = [
    ("string", b"", "ends after 0 bytes"),
    ("string", ONE, "leads beyond the data"),
    ("string", ONE[:31], "ends after 31 bytes"),
    ("string", number(0) + number(0), "leads back into the offsets"),
    ("string", number(2**256 - 1) + number(0), "leads beyond the data"),
    ("string", number(2**255) + number(0), "leads beyond the data"),
    ("string", number(2**32 + 32) + number(0), "leads beyond the data"),
    ("string", ONE + number(2**256 - 1), "is more than the data"),
    ("string", ONE + number(2**64), "is more than the data"),
    ("string", ONE + number(1), "ends after 64 bytes"),
    ("string", ONE + number(1) + b"a" + bytes(30), "ends after 95 bytes"),
    ("string", ONE + number(1) + b"ab" + bytes(30), "is not zero"),
    ("bytes", ONE + number(33) + bytes(64)[:-1] + b"\1", "is not zero"),
    ("string", number(33) + number(0), "ends after 64 bytes"),
    ("uint256[]", ONE + number(2**255), "is more than the data"),
    ("uint256[]", ONE + number(3) + bytes(64), "ends after 128 bytes"),
    ("address[]", ONE + number(1) + b"\1" + bytes(31), "a word is no address"),
    ("bool[]", ONE + number(1) + number(2), "a word is no bool"),
    ("uint8[]", ONE + number(1) + number(256), "a word is no uint8"),
    ("int8[]", ONE + number(1) + number(128), "a word is no int8"),
    ("bytes4[]", ONE + number(1) + b"abcde" + bytes(27), "a word is no bytes4"),
    ("string[]", ONE + number(1) + number(0), "leads back into the offsets"),
    ("string[]", ONE + number(2) + number(64) + number(999) + number(0), "leads beyond the data"),
    ("uint256[2]", bytes(63), "ends after 63 bytes"),
    ("uint256[1000000000]", bytes(64), "ends after 64 bytes"),
]


@pytest.mark.parametrize(("type_", "data", "why"), MALFORMED)
def test_malformed_data_says_what_is_wrong_with_it(type_: str, data: bytes, why: str) -> None:
    inputs = [argument("x", type_)]
    good = (
        encode([type_.replace("string", "bytes")], [[] if "[]" in type_ else b"ok"])
        if ("[" not in type_ or "[]" in type_)
        else bytes(64)
    )
    found = ours(inputs, data, good, data)
    assert isinstance(found[0], str) and why in found[0] and found[0].startswith("argument arg0: ")
    assert found[2] == found[0], "one row says nothing of another"
    assert isinstance(found[1], list) or "1000000000" in type_


def test_a_few_bytes_cannot_stand_for_many() -> None:
    """Every item leads to one place, on every level: 400 words would be 10^9 items."""
    level = b"".join([number(100), *(number(32 * 100) for _ in range(100))])
    data = ONE + level * 4 + number(0) + bytes(32 * 100)
    (found,) = ours([argument("x", "uint256[][][][][]")], data)
    assert isinstance(found, str) and "overlap" in found


def test_strings_that_text_cannot_hold_survive_and_can_be_read_back() -> None:
    every = [
        b"",
        b"plain",
        "naïve 🦄".encode(),
        b"a\0b",
        b"\xff\xfe",
        b"C:\\x\0",
        b"\\",
        b"\xed\xa0\x80",
    ]
    data = [encode(["bytes"], [value]) for value in every]
    found = ours([argument("x", "string")], *data)
    assert found == [[decoding.text(value)] for value in every]
    told = [row[0] for row in found]
    assert told[:3] == ["", "plain", "naïve 🦄"] and told[6] == "\\"
    assert told[3:6] == ["a\\x00b", "\\xff\\xfe", "C:\\\\x\\x00"]
    assert all("\0" not in each for each in told)


def test_a_column_that_is_too_large_to_gather_at_once_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = [encode(["bytes"], [bytes([n]) * n]) for n in range(70)]
    wanted = ours([argument("x", "bytes")], *data)
    monkeypatch.setattr(dynamic, "GATHERED_MAX", 10)
    assert ours([argument("x", "bytes")], *data) == wanted


def test_a_slice_of_a_column_and_none_at_all_are_read() -> None:
    data = pa.array([encode(["bytes"], [bytes([n])]) for n in range(5)], pa.binary())
    part = Part(name="x", type=types.read(argument("x", "bytes")), at=0, heads=32)
    held = dynamic.decode([part], data.slice(2, 2)).to_pylist()
    assert [row["part0"] for row in held] == [b"\2", b"\3"]
    assert dynamic.decode([part], data.slice(5)).to_pylist() == []
    large = dynamic.decode([part], data.cast(pa.large_binary()))
    assert [row["part0"] for row in large.to_pylist()] == [bytes([n]) for n in range(5)]


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"name": "x"}, "has no type"),
        (argument("x", "uint7"), "no such number of bits"),
        (argument("x", "uint264"), "no such number of bits"),
        (argument("x", "bytes33"), "no such number of bytes"),
        (argument("x", "bytes0"), "no such number of bytes"),
        (argument("x", "fixed128x18"), "not one that contracts emit"),
        (argument("x", "address2"), "not one that contracts emit"),
        (argument("x", "uint256[0]"), "an array of no items"),
        (argument("x", "tuple"), "no components"),
        (argument("x", "uint8" + "[]" * 40), "more than 32 deep"),
        ({"name": "x", "type": "tuple", "components": [3]}, "is no mapping"),
    ],
)
def test_a_type_that_no_contract_emits_is_refused(entry: Row, why: str) -> None:
    with pytest.raises(AbiInvalid, match=why):
        types.read(entry)


def test_columns_are_named_as_sql_writes_them_and_never_alike() -> None:
    inputs = [
        argument("_from", "address", indexed=True),
        argument("tokenId", "uint256"),
        argument("token_id", "uint64"),
        argument("address", "address"),
        argument("", "bool"),
        argument("HTTPUrl2Name", "string"),
        argument("naïve$", "int72"),
        argument("1st", "bytes4"),
        argument("key", "string", indexed=True),
        argument("pair", "tuple", argument("", "uint8"), indexed=True),
        argument("x" * 90, "uint56"),
        argument("x" * 90, "uint8[2]"),
    ]
    found = columns.of(abi.event(decoding.event("E", *inputs)))
    assert [(one.name, one.kind.name) for one in found] == [
        ("from_", "BYTES"),
        ("token_id", "U256"),
        ("token_id_", "U256"),
        ("address_", "BYTES"),
        ("arg4", "BOOL"),
        ("http_url2_name", "TEXT"),
        ("na_ve", "SIGNED"),
        ("_1st", "BYTES"),
        ("key_hash", "BYTES"),
        ("pair_hash", "BYTES"),
        ("x" * 58, "INT"),
        ("x" * 58 + "_", "JSON"),
    ]


def test_what_an_abi_says_in_other_words_is_the_same_event() -> None:
    one = decoding.event(
        "E", argument("a", "uint256"), argument("b", "tuple", argument("c", "int256"))
    )
    other = json.loads(json.dumps(one))
    other["inputs"][0] |= {"type": "uint", "internalType": "Amount"}
    other["inputs"][1]["components"][0] |= {"internalType": "int256", "type": "int"}
    assert abi.event(one).document == abi.event(other).document
    assert abi.event(one).topic == decoding.topic(one)
    other["inputs"][0]["indexed"] = True
    assert abi.event(one).document != abi.event(other).document


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("{}", "is no ABI"),
        ('{"abi": {}}', "is no ABI"),
        ("[1]", "an entry of it is no mapping"),
        ("[]", "has no event"),
        ('[{"type": "event"}]', "without name or inputs"),
        ('[{"type": "event", "name": "E", "inputs": [{"type": "uint9"}]}]', "event `E`: the type"),
        ("[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_a_file_that_is_no_abi_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "abi.json"
    file.write_text(text)
    with pytest.raises(AbiInvalid, match=why):
        abi.load(file)
    with pytest.raises(AbiInvalid, match="cannot be read"):
        abi.load(tmp_path / "none.json")
    file.write_bytes(b"\xff")
    with pytest.raises(AbiInvalid, match="not UTF-8"):
        abi.load(file)


def test_more_topics_than_a_log_has_are_refused() -> None:
    four = [argument(f"a{n}", "bool", indexed=True) for n in range(4)]
    with pytest.raises(AbiInvalid, match="more than 3 indexed"):
        abi.event(decoding.event("E", *four))
    assert len(abi.event(decoding.event("E", *four, anonymous=True)).indexed) == 4
