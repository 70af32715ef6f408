"""Owns where things are in the lake: names of partitions and folders, and how a chain is cut.

A folder is named for the blocks that it covers, so that empty and absent differ, and for its
version, so that nothing is ever written twice to one place:
`<chain>/<dataset>/<first>-<last>/<version>/….parquet`.
"""

from __future__ import annotations

import hashlib
import json
import re

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.datasets.dataset import Dataset

#: Raised when files of the same rows would look otherwise.
FORMAT = 1

_FOLDER = re.compile(r"[^/]+/[^/]+/[^/]+/\d+-[0-9a-f]+")


def key(span: Span) -> str:
    """The partition that holds a span."""
    return f"{span.first}-{span.last}"


def folder(chain: str, dataset: str, key: str) -> str:
    """Where the versions of a partition are, below the root."""
    return f"{chain}/{dataset}/{key}"


def of_file(path: str) -> str | None:
    """The folder of the version that a file below the root belongs to; None where it is none."""
    match = _FOLDER.match(path)
    return None if match is None or path[match.end() : match.end() + 1] != "/" else match.group()


def following(first: int, size: int) -> Span:
    """The partition that begins at a block: it ends before the next multiple of the size.

    The first one of a chain may begin anywhere, and the size may have been another one before.
    """
    return Span(first, spans.aligned(first, size).last)


def schema_hash(dataset: Dataset) -> str:
    """A short stable name of the columns of a raw dataset, as its files have them."""
    columns = [[column.name, column.kind.value, column.nullable] for column in dataset.columns]
    shape = {"columns": columns, "key": dataset.key}
    text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
