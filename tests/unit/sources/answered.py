"""Answers of a node as the source parses them, made from devnet blocks and damaged at will."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from unfork.devnet import render
from unfork.devnet.block import Block
from unfork.sources import answers

Damage = Callable[[Any], None]


def block(block: Block, damage: Damage = lambda _: None) -> answers.Block:
    """A block with its transactions."""
    said = json.loads(json.dumps(render.block(block, full=True)))
    damage(said)
    parsed = answers.BLOCK.result.decode(json.dumps(said).encode())
    assert parsed is not None
    return parsed


def receipts(block: Block, damage: Damage = lambda _: None) -> list[answers.Receipt]:
    """The receipts of a block."""
    said = json.loads(json.dumps(render.receipts(block)))
    damage(said)
    parsed = answers.RECEIPTS.result.decode(json.dumps(said).encode())
    assert parsed is not None
    return parsed


def logs(block: Block, damage: Damage = lambda _: None) -> list[answers.Log]:
    """The logs of a block, by themselves."""
    said = json.loads(json.dumps(render.logs(block)))
    damage(said)
    parsed = answers.LOGS.result.decode(json.dumps(said).encode())
    assert parsed is not None
    return parsed


def parity_traces(block: Block, damage: Damage = lambda _: None) -> list[answers.ParityTrace]:
    """The answer of trace_block."""
    said = json.loads(json.dumps(render.flat_traces(block)))
    damage(said)
    parsed = answers.PARITY_TRACES.result.decode(json.dumps(said).encode())
    assert parsed is not None
    return parsed


def frames(block: Block, damage: Damage = lambda _: None) -> list[answers.FramedTransaction]:
    """The answer of debug_traceBlockByHash."""
    said = json.loads(json.dumps(render.call_traces(block)))
    damage(said)
    parsed = answers.FRAMES.result.decode(json.dumps(said).encode())
    assert parsed is not None
    return parsed
