"""Reads tiny chains drawn in text: `a1-b2-c3` is three blocks, `a1-b2'` forks after the first.

The digits of a block are its number, its whole text is its hash, so equal texts are equal blocks.
Numbers may be left out (`a1-d4`): histories and samples may have gaps.
"""

from __future__ import annotations

import re

from unfork.chain.block import BlockRef


def ref(text: str) -> BlockRef:
    """One block, such as `b2'`."""
    match = re.fullmatch(r"[a-z]+(\d+)'*", text)
    assert match, f"not a block: {text!r}"
    return BlockRef(int(match.group(1)), text.encode())


def chain(text: str) -> list[BlockRef]:
    """Blocks in the order they are drawn; an empty text is no block."""
    return [ref(part) for part in text.split("-")] if text else []
