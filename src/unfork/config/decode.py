"""Owns the branch of the configuration that declares decoding: contracts' events, by their ABI.

An entry stands for a job an event (jobs/decode/listed.py). What is written here is checked by
itself; ABI files are read, and what one entry means for another is checked, by the jobs layer.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from unfork.config.branch import Branch
from unfork.config.jobs import NAME

ADDRESS = re.compile(r"0[xX][0-9a-fA-F]{40}")


class Addresses(Branch):
    """Which contracts: any, a list, or those that a factory announced."""

    listed: tuple[str, ...] = ()
    """These contracts; written as a list in place of the branch, or left out for any contract."""
    factory: Factory | None = None
    """Those that another contract's event announced, from the block of the event on."""

    @model_validator(mode="before")
    @classmethod
    def _is_short(cls, value: Any) -> Any:
        if value == "any":
            return {}
        if isinstance(value, str):
            raise ValueError("must be any, a list of addresses, or factory: with its keys")
        if isinstance(value, list | tuple):
            if not value:
                raise ValueError("lists no address; write any for all contracts")
            return {"listed": value}
        return value

    @field_validator("listed")
    @classmethod
    def _are_addresses(cls, listed: tuple[str, ...]) -> tuple[str, ...]:
        for text in listed:
            if not ADDRESS.fullmatch(text):
                raise ValueError(f"{text!r} is no address: 0x and 40 hexadecimal digits")
        found = tuple(text.lower() for text in listed)
        for text in found:
            if found.count(text) > 1:
                raise ValueError(f"{text} is listed twice")
        return found

    @model_validator(mode="after")
    def _is_one_thing(self) -> Addresses:
        if self.listed and self.factory is not None:
            raise ValueError("a list and a factory cannot be given both; write two entries")
        return self

    @property
    def is_any(self) -> bool:
        """Whether every contract is meant."""
        return not self.listed and self.factory is None


class Factory(Branch):
    """A contract whose event announces others."""

    address: Addresses
    """The factory's address, a list of them, or a factory of factories."""
    abi: str
    """The JSON ABI of the factory."""
    event: str
    """The event that announces a contract: its name, or its signature where several have it."""
    argument: str
    """The argument of it that is the announced address."""

    @field_validator("address", mode="before")
    @classmethod
    def _is_one(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) and value != "any" else value

    @field_validator("address")
    @classmethod
    def _is_known(cls, address: Addresses) -> Addresses:
        if address.is_any:
            raise ValueError("a factory must be known by its address: anybody can log its event")
        return address


Addresses.model_rebuild()


class Decode(Branch):
    """The events of some contracts, each as a dataset of its own."""

    name: str = Field(pattern=NAME)
    """What the datasets' names begin with: uniswap makes uniswap_swap of the event Swap."""
    abi: str
    """A JSON ABI: a list, or a compiler's artifact that holds one under abi."""
    addresses: Addresses = Addresses()
    """The contracts: any (when left out), a list of addresses, or factory: with its keys."""
    events: tuple[str, ...] = ()
    """The events, by name or by signature; all of the ABI when left out."""
    on_change: Literal["stop", "continue"] = "stop"
    """When the ABI or the addresses change, stop until a backfill, or continue from the next
    block on."""

    @field_validator("events")
    @classmethod
    def _are_named_once(cls, events: tuple[str, ...]) -> tuple[str, ...]:
        for event in events:
            if events.count(event) > 1:
                raise ValueError(f"{event!r} is named twice")
        return events
