"""Owns the pauses of a loop whose source or database is away: they double, up to a limit."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Pauses between tries, with jitter so that many followers do not come back as one."""

    #: Longest pause in seconds.
    limit_s: float
    #: First pause in seconds, before jitter.
    first_s: float = 0.1
    #: Tries since the last success.
    tries: int = 0
    random: random.Random = field(default_factory=random.Random)

    def next(self) -> float:
        """Seconds to wait before the next try."""
        ceiling = min(self.limit_s, self.first_s * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return self.random.uniform(ceiling / 2, ceiling)

    def worth_telling(self) -> bool:
        """Whether this try should be shown to people: the first, then ever fewer."""
        return self.tries & (self.tries - 1) == 0

    def reset(self) -> None:
        """A try succeeded."""
        self.tries = 0
