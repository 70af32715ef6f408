"""Owns what every branch of the configuration tree shares: frozen, and closed to unknown keys.

It stands apart so that a large branch can have a file of its own, with the limits that keep a
number within what Postgres and the clock can count; `listed` finds the branch that a
list of branches holds, for whoever walks the tree.
"""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

#: The highest block number that may be named: the end of its partition, and of those made ahead of
#: it, must still be a bigint.
NUMBER_MAX = 10**18
#: Blocks in one partition at most, for the same reason.
PARTITION_SIZE_MAX = 10**12
#: The longest wait that makes sense, one day; Postgres counts its own in 31 bits of milliseconds.
WAIT_S_MAX = 86_400
WAIT_MS_MAX = WAIT_S_MAX * 1000
#: The longest time to keep something, a hundred years: that long ago is still a date.
KEEP_S_MAX = 3_153_600_000


class Branch(BaseModel):
    """A branch of the tree: frozen, and closed to unknown keys.

    Where a number stands, it is finite and not `yes`: YAML reads words that Python would count.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_word(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and field.annotation in (int, float):
            raise ValueError("must be a number, not true or false")
        return value


def listed(annotation: Any) -> type[BaseModel] | None:
    """The branch of which a key takes a list (`chains`), None where it takes something else."""
    if get_origin(annotation) is not tuple:
        return None
    item = get_args(annotation)[0]
    return item if isinstance(item, type) and issubclass(item, BaseModel) else None


def keyed(annotation: Any) -> type[BaseModel] | None:
    """The branch that stands below names of a person's own (`lookups`), None elsewhere."""
    if get_origin(annotation) is not dict:
        return None
    item = get_args(annotation)[1]
    return item if isinstance(item, type) and issubclass(item, BaseModel) else None


def below(annotation: Any) -> type[BaseModel] | None:
    """The branch that follows below a key, alone, in a list or by name; None for a value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType):
        found = [below(each) for each in get_args(annotation) if each is not type(None)]
        return found[0] if len(found) == 1 else None
    return listed(annotation) or keyed(annotation)
