"""Goal: what real clients produced is proven, and what they left out is called unproven.

Method: a chain made by geth under every rule from Frontier to Osaka, and mainnet blocks whose
recordings lack mix hash and signatures; the oracle is the hash each block already has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from unfork.proof import block, header, rows, rpc
from unfork.proof.finding import Check, Finding, Outcome
from unfork.proof.header import Header
from unfork.proof.keccak import keccak256
from unfork.proof.trie import ordered_root

PROVEN, UNPROVEN = Outcome.PROVEN, Outcome.UNPROVEN


def findings(answer: dict[str, Any], receipts: list[Any] | None) -> dict[Check, Finding]:
    """The findings on a node's answer, by check."""
    return {f.check: f for f in rows.findings(rpc.rows(answer, receipts))}


@pytest.fixture(scope="module")
def chain(shared_data: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((shared_data / "geth-chain.json").read_bytes())
    return loaded


@pytest.fixture(scope="module", params=["1755634", "17173049", "19528783"])
def mainnet(request: pytest.FixtureRequest, shared_data: Path) -> dict[str, Any]:
    path = shared_data / "mainnet" / f"{request.param}.json"
    loaded: dict[str, Any] = json.loads(path.read_bytes())
    return loaded


def test_every_block_of_the_geth_chain_is_proven(chain: dict[str, Any]) -> None:
    blocks = [chain["blocks"][name] for name in chain["canonical"]]
    assert len(blocks) == 55
    types = {part["type"] for answer in blocks for part in answer["transactions"]}
    assert types == {"0x0", "0x1", "0x2", "0x3", "0x4"}
    for answer in blocks:
        found = findings(answer, answer.get("receipts"))
        for check in (
            *(Check.HEADER_HASH, Check.TRANSACTION_HASHES, Check.TRANSACTIONS_ROOT),
            *(Check.WITHDRAWALS_ROOT, Check.TRANSACTION_COUNT, Check.PLACEMENT),
            Check.TRANSACTION_FIELDS,
        ):
            assert found[check].outcome is PROVEN, (answer["number"], found[check])


def test_the_size_of_every_block_of_the_geth_chain_is_proven_unless_it_has_uncles(
    chain: dict[str, Any],
) -> None:
    sizes = {PROVEN: 0, UNPROVEN: 0}
    for name in chain["canonical"]:
        found = findings(chain["blocks"][name], None)[Check.BLOCK_SIZE]
        sizes[found.outcome] += 1
        assert (found.outcome is UNPROVEN) == bool(chain["blocks"][name]["uncles"]), found
    assert sizes[PROVEN] > 30 and sizes[UNPROVEN] > 0


def test_receipts_of_the_geth_chain_are_proven_where_they_were_recorded(
    chain: dict[str, Any],
) -> None:
    recorded = {
        int(answer["number"], 16): answer
        for answer in chain["blocks"].values()
        if answer.get("receipts")
    }
    for request in chain["io"]:
        if request["method"] == "eth_getBlockReceipts" and request.get("result"):
            receipts = request["result"]
            answer = chain["blocks"][receipts[0]["blockHash"]]
            recorded[int(answer["number"], 16)] = {**answer, "receipts": receipts}
    assert sorted(recorded) == [1, 54]
    for answer in recorded.values():
        found = findings(answer, answer["receipts"])
        beyond = {check for check, finding in found.items() if finding.outcome is not PROVEN}
        assert beyond == {Check.SENDERS} and found[Check.SENDERS].outcome is UNPROVEN


def test_receipts_that_were_not_recorded_are_unproven(chain: dict[str, Any]) -> None:
    answer = chain["blocks"][chain["canonical"][30]]
    found = findings(answer, None)
    for check in (Check.RECEIPTS_ROOT, Check.GAS_USED, Check.LOGS_BLOOM, Check.LOG_INDEXES):
        assert found[check].outcome is UNPROVEN


def test_raw_receipts_of_geth_give_the_root_in_the_header(chain: dict[str, Any]) -> None:
    """The trie alone, over envelopes that geth encoded itself."""
    raw = next(
        request["result"]
        for request in chain["io"]
        if request["method"] == "debug_getRawReceipts" and request.get("result")
    )
    answer = chain["blocks"][chain["canonical"][3]]
    root = ordered_root([bytes.fromhex(text[2:]) for text in raw])
    assert "0x" + root.hex() == answer["receiptsRoot"]


def test_a_raw_header_of_geth_is_the_header_we_encode(chain: dict[str, Any]) -> None:
    raw = [
        bytes.fromhex(request["result"][2:])
        for request in chain["io"]
        if request["method"] == "debug_getRawHeader" and request.get("result")
    ]
    assert raw
    for encoded in raw:
        answer = chain["blocks"]["0x" + keccak256(encoded).hex()]
        claimed = rows.claim(rpc.rows(answer, None)).header
        assert isinstance(claimed, Header) and header.encode(claimed) == encoded


def test_receipts_and_bloom_of_mainnet_blocks_are_proven(mainnet: dict[str, Any]) -> None:
    found = findings(mainnet["block"], mainnet["receipts"])
    for check in (
        *(Check.RECEIPTS_ROOT, Check.LOGS_BLOOM, Check.GAS_USED, Check.PLACEMENT),
        *(Check.LOG_TRANSACTIONS, Check.CREATED_CONTRACTS, Check.GAS_PRICES),
    ):
        assert found[check].outcome is PROVEN, found[check]
    assert not any(finding.outcome is Outcome.FAILED for finding in found.values())


def test_what_a_mainnet_recording_lacks_is_unproven(mainnet: dict[str, Any]) -> None:
    found = findings(mainnet["block"], mainnet["receipts"])
    assert found[Check.HEADER_HASH].outcome is UNPROVEN
    assert "mix_hash" in found[Check.HEADER_HASH].reason
    # A block without transactions lacks no signature: its empty list is proven by the empty root.
    expected = UNPROVEN if mainnet["block"]["transactions"] else PROVEN
    assert found[Check.TRANSACTIONS_ROOT].outcome is expected
    assert found[Check.TRANSACTION_HASHES].outcome is expected


@pytest.mark.parametrize("field", ["mixHash", "nonce", "stateRoot", "difficulty", "logsBloom"])
def test_a_header_without_one_of_its_fields_is_unproven(chain: dict[str, Any], field: str) -> None:
    answer = dict(chain["blocks"][chain["canonical"][10]])
    del answer[field]
    assert findings(answer, None)[Check.HEADER_HASH].outcome is UNPROVEN


@pytest.mark.parametrize("field", ["baseFeePerGas", "withdrawalsRoot", "blobGasUsed"])
def test_a_header_without_a_field_below_later_ones_is_unproven(
    chain: dict[str, Any], field: str
) -> None:
    answer = dict(chain["blocks"][chain["canonical"][54]])
    del answer[field]
    found = findings(answer, None)[Check.HEADER_HASH]
    assert found.outcome is UNPROVEN


def test_the_last_field_of_a_header_is_missed_when_the_block_below_has_it(
    chain: dict[str, Any],
) -> None:
    below, answer = (dict(chain["blocks"][chain["canonical"][at]]) for at in (53, 54))
    del answer["requestsHash"]
    later_min = rows.later_count(rpc.rows(below, None).block)
    claim = rows.claim(rpc.rows(answer, None), later_min=later_min)
    found = {finding.check: finding for finding in block.check(claim)}[Check.HEADER_HASH]
    assert (found.outcome, "requests_hash" in found.reason) == (UNPROVEN, True)


@pytest.mark.parametrize("field", ["r", "s", "v", "chainId", "maxFeePerGas", "input"])
def test_a_transaction_without_one_of_its_fields_is_unproven(
    chain: dict[str, Any], field: str
) -> None:
    answer = json.loads(json.dumps(chain["blocks"][chain["canonical"][27]]))
    part = next(part for part in answer["transactions"] if part["type"] == "0x2")
    del part[field]
    part.pop("yParity") if field == "v" else None
    found = findings(answer, None)
    assert found[Check.TRANSACTIONS_ROOT].outcome is UNPROVEN
    assert found[Check.TRANSACTION_HASHES].outcome is UNPROVEN


@pytest.mark.parametrize("field", ["yParity", "r", "s", "chainId", "nonce", "address"])
@pytest.mark.parametrize("is_null", [True, False])
def test_an_authorization_without_one_of_its_fields_is_unproven(
    chain: dict[str, Any], field: str, is_null: bool
) -> None:
    answer = json.loads(json.dumps(chain["blocks"][chain["canonical"][45]]))
    part = next(part for part in answer["transactions"] if part["type"] == "0x4")
    entry = part["authorizationList"][0]
    entry[field] = None
    if not is_null:
        del entry[field]
    found = findings(answer, None)
    for check in (Check.TRANSACTIONS_ROOT, Check.TRANSACTION_HASHES):
        assert found[check].outcome is UNPROVEN, found[check]
        assert field in found[check].reason


def test_an_authorization_that_is_no_number_is_a_failure(chain: dict[str, Any]) -> None:
    answer = json.loads(json.dumps(chain["blocks"][chain["canonical"][45]]))
    part = next(part for part in answer["transactions"] if part["type"] == "0x4")
    part["authorizationList"][0]["r"] = "0xzz"
    assert findings(answer, None)[Check.TRANSACTION_HASHES].outcome is Outcome.FAILED


@pytest.mark.parametrize("field", ["address", "storageKeys"])
def test_an_access_list_without_one_of_its_fields_is_unproven(
    chain: dict[str, Any], field: str
) -> None:
    answer = json.loads(json.dumps(chain["blocks"][chain["canonical"][24]]))
    part = next(part for part in answer["transactions"] if part.get("accessList"))
    del part["accessList"][0][field]
    assert findings(answer, None)[Check.TRANSACTION_HASHES].outcome is UNPROVEN
