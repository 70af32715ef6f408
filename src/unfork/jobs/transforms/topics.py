"""Owns the events of token contracts: the hash of each signature, and what a log of it looks like.

A signature alone does not tell an event: ERC-20 and ERC-721 have two in common, and differ in how
many of their arguments are topics. So a log is one only if topics and data are of the right size,
too. The conditions are SQL; the first part of each is one that a database can answer.
"""

from __future__ import annotations

#: keccak256("Transfer(address,address,uint256)"): ERC-20 and ERC-721 share it.
TRANSFER = bytes.fromhex("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
#: keccak256("TransferSingle(address,address,address,uint256,uint256)"), of ERC-1155.
TRANSFER_SINGLE = bytes.fromhex("c3d58168c5ae7397731d063d5bbf3d657854427343f4c083240f7aacaa2d0f62")
#: keccak256("TransferBatch(address,address,address,uint256[],uint256[])"), of ERC-1155.
TRANSFER_BATCH = bytes.fromhex("4a39dc06d4c0dbc64b70af90fd698a233a518aa5d07e595d983b8c0526c8f7fb")
#: keccak256("Approval(address,address,uint256)"): ERC-20 and ERC-721 share it.
APPROVAL = bytes.fromhex("8c5be1e5ebec7d5bd14f71427d1e84f3dd0314c0f7b2291e5b200ac8c7c3b925")
#: keccak256("ApprovalForAll(address,address,bool)"): ERC-721 and ERC-1155 share it.
APPROVAL_FOR_ALL = bytes.fromhex("17307eab39ab6107e8899845ad3d59bd9653f200f220920489ca2b5937696c31")

#: Whatever may be a transfer, and an approval.
TRANSFERS = (TRANSFER, TRANSFER_SINGLE, TRANSFER_BATCH)
APPROVALS = (APPROVAL, APPROVAL_FOR_ALL)

#: Bytes of the shortest batch that moves anything: two places, two lengths of one array each.
BATCH_BYTES_MIN = 128


def is_any(*topics: bytes) -> str:
    """Whether a log is of one of these signatures, and has two arguments or more among topics."""
    listed = ", ".join(map(literal, topics))
    return f"topic0 IN ({listed}) AND topic1 IS NOT NULL AND topic2 IS NOT NULL"


def is_token_or_nft(topic: bytes) -> str:
    """Whether a log has one number more: in its data for ERC-20, as a fourth topic for ERC-721."""
    size = "CASE WHEN topic3 IS NULL THEN 32 ELSE 0 END"
    return f"topic0 = {literal(topic)} AND length(data) = {size}"


def literal(value: bytes) -> str:
    """Bytes as SQL has them."""
    return f"X'{value.hex()}'"
