"""Owns the knobs of a devnet: what its seeded chain is like.

Same knobs, same chain. The knobs that shape a block's content are told apart from those that only
say when the chain forks, so that chains which fork differently still share the blocks they share.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Self

from unfork.config.tree import FORK_LENGTHS, FORK_STYLES, Devnet, ForkLength, ForkStyle

#: Empty blocks in a row where the configuration asks for awkward values.
EMPTY_STRETCH = 200
#: Blocks that a devnet which may run for days holds in memory.
KEEP_BLOCKS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """Every choice about the chain that is not left to its seed."""

    #: Same seed, same chain.
    seed: int = 1
    #: The chain id that transactions are signed for.
    chain_id: int = 1337
    #: Transactions in a block, on average.
    density: int = 2
    #: Seconds of chain time between two blocks, where no slot is missed.
    block_time_s: int = 12
    #: Chance that `advance` makes a fork instead of one more block.
    fork_rate: float = 0.08
    #: Blocks that a fork of `advance` replaces at most.
    fork_depth_max: int = 6
    #: What forks of `advance` may do with the transactions they take.
    fork_styles: tuple[ForkStyle, ...] = FORK_STYLES
    #: How high the head may be after a fork of `advance`, compared with before.
    fork_lengths: tuple[ForkLength, ...] = FORK_LENGTHS
    #: Blocks between the head and the finalized block; None for a chain without finality.
    finality_lag: int | None = 80
    #: Whether hashes, roots and blooms are the real ones; otherwise they cost next to nothing.
    proven: bool = False
    #: Whether awkward values are mixed in: 2^256-1, NUL bytes, huge log indexes, empty symbols.
    hostile: bool = False
    #: Contracts that a factory may announce, which log events whether it has or not; 0 for none.
    pools: int = 0
    #: Blocks in a row without any content, once every four such stretches; 0 for none.
    empty_stretch: int = 0
    #: Blocks held in memory; older ones are built again when asked for. None holds all.
    keep_blocks: int | None = None

    def __post_init__(self) -> None:
        assert self.density >= 0 and self.block_time_s >= 1 and self.empty_stretch >= 0
        assert self.pools >= 0
        assert 0 <= self.fork_rate <= 1 and self.fork_depth_max >= 1
        assert self.fork_styles and self.fork_lengths
        assert self.finality_lag is None or self.finality_lag >= 1
        assert self.keep_blocks is None or self.keep_blocks >= 1

    @classmethod
    def of(cls, devnet: Devnet, *, chain_id: int = 1337) -> Self:
        """The knobs that a configuration asks for."""
        return cls(
            seed=devnet.seed,
            chain_id=chain_id,
            density=devnet.density,
            fork_rate=devnet.fork_rate,
            fork_depth_max=devnet.fork_depth_max,
            fork_styles=devnet.fork_styles,
            fork_lengths=devnet.fork_lengths,
            finality_lag=devnet.finality_lag,
            proven=devnet.proven,
            hostile=devnet.hostile,
            pools=devnet.pools,
            empty_stretch=EMPTY_STRETCH if devnet.hostile else 0,
            keep_blocks=KEEP_BLOCKS,
        )

    @property
    def content_key(self) -> bytes:
        """Names the knobs that shape a block's content; equal keys give equal blocks."""
        shaping: tuple[object, ...] = (
            self.seed,
            self.chain_id,
            self.density,
            self.block_time_s,
            self.proven,
            self.hostile,
            self.empty_stretch,
        )
        if self.pools:
            # Chains without pools are what they were before there were any.
            shaping += (self.pools,)
        return hashlib.sha256(repr(shaping).encode()).digest()

    def is_empty(self, number: int) -> bool:
        """Whether the block with this number belongs to a stretch of empty ones.

        The stretch is the last quarter of its cycle, so that a short chain has content at once.
        """
        stretch = self.empty_stretch
        return stretch > 0 and number % (4 * stretch) >= 3 * stretch
