"""Owns Keccak-256, the hash that every commitment of an EVM chain is made with.

It is Keccak as submitted, before the padding changed: `hashlib.sha3_256` gives other digests.
"""

from __future__ import annotations

import sha3


def keccak256(data: bytes) -> bytes:
    """The 32-byte Keccak-256 digest."""
    digest: bytes = sha3.keccak_256(data).digest()
    return digest
