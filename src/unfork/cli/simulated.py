"""Owns which chain is simulated, and where the devnet of a data folder keeps its place.

Only the chain called `devnet`, and only without endpoints of its own, is simulated: a chain of any
other name that lacks endpoints is a mistake, and following a made-up chain instead would hide it.
"""

from __future__ import annotations

from pathlib import Path

from unfork.config.tree import Chain, Config

NAME = "devnet"


def is_simulated(chain: Chain) -> bool:
    """Whether unfork runs the chain itself."""
    return chain.name == NAME and not chain.source.urls


def place(config: Config) -> Path:
    """The file that remembers how far the devnet has come."""
    return Path(config.data_dir) / "devnet.json"


def with_source(config: Config, url_http: str, url_ws: str) -> Config:
    """The configuration with the running devnet as its chain's source."""
    chains = []
    for chain in config.chains:
        if is_simulated(chain):
            source = chain.source.model_copy(update={"urls": (url_http, url_ws)})
            chain = chain.model_copy(update={"source": source})
        chains.append(chain)
    return config.model_copy(update={"chains": tuple(chains)})
