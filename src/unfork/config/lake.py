"""Owns the branch of the configuration that says where cold storage is and how it is cut."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from unfork.config.branch import KEEP_S_MAX, PARTITION_SIZE_MAX, WAIT_S_MAX, Branch

#: How a URL of a lake begins; what has no scheme is a folder.
SCHEMES = ("file", "s3", "s3a", "gs")


class Lake(Branch):
    """Cold storage: Parquet files, in immutable versions of partitions."""

    url: str | None = Field(default=None, repr=False)
    """A folder, or a bucket by URL (s3a://, gs://) that Spark has the jars for; the folder lake
    under data_dir when left out."""
    partition_blocks: int = Field(default=50_000, ge=1, le=PARTITION_SIZE_MAX)
    """Blocks in one partition of the lake; partitions end before multiples of it."""
    read_keep_s: int = Field(default=3600, ge=1, le=WAIT_S_MAX)
    """Seconds for which the files of a reading stay, whatever replaces them meanwhile."""
    retired_keep_s: int = Field(default=86_400, ge=0, le=KEEP_S_MAX)
    """Seconds after which the files of a version that was replaced may be removed, where nobody
    reads them."""

    @field_validator("url")
    @classmethod
    def _is_folder_or_bucket(cls, url: str | None) -> str | None:
        if url is None:
            return None
        scheme = re.match(r"([A-Za-z][\w+.-]*):", url)
        if scheme is not None and scheme.group(1) not in SCHEMES:
            known = ", ".join(f"{name}:" for name in SCHEMES)
            raise ValueError(f"must be a folder, or begin with one of {known}")
        return url
