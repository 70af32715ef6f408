"""Owns a size that adapts to a limit nobody states: it shrinks when refused and widens again."""

from __future__ import annotations


class Reach:
    """How much to ask for at once.

    A refusal halves it; a run of successes doubles it, up to the bound. Each refusal right after
    widening makes the next attempt to widen wait twice as long, so that a steady limit is met
    rarely, while one that was passing is left behind soon.
    """

    #: Successes before the first attempt to widen.
    PATIENCE = 8
    #: Successes before an attempt to widen, at most.
    PATIENCE_MAX = 512

    def __init__(self, size_max: int) -> None:
        assert size_max >= 1
        self.size_max = size_max
        self.size = size_max
        self._patience = self.PATIENCE
        self._successes = 0
        self._just_widened = False

    def refused(self, size: int) -> bool:
        """Notes that `size` was too much; False where nothing smaller is left to try."""
        if size <= 1:
            return False
        if self._just_widened:
            self._patience = min(self._patience * 2, self.PATIENCE_MAX)
        # Several requests of the same size may be refused at once: that is one refusal.
        self.size = min(self.size, max(1, size // 2))
        self._successes = 0
        self._just_widened = False
        return True

    def succeeded(self, size: int) -> None:
        """Notes that `size` was answered."""
        if self.size >= self.size_max or size < self.size:
            return
        self._successes += 1
        if self._successes < self._patience:
            return
        if self._just_widened:
            self._patience = self.PATIENCE  # The last widening held: the limit has moved.
        self.size = min(self.size * 2, self.size_max)
        self._successes = 0
        self._just_widened = True
