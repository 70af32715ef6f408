"""Goal: a payload is stored once, whole or not at all, and never handed out when it is damaged.

Method: a folder, and a bucket that fsspec keeps in memory.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import pytest

from unfork import errors
from unfork.hot import payloads
from unfork.hot.payloads import PayloadStore

VALUE = b"\x00large" * 2000
HASH = hashlib.sha256(VALUE).digest()


@pytest.fixture(params=["folder", "file url", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> PayloadStore:
    urls = {
        "folder": str(tmp_path),
        "file url": f"file://{tmp_path}",
        "bucket": f"memory://{uuid.uuid4()}",
    }
    return PayloadStore(urls[request.param])


async def names(store: PayloadStore) -> list[str]:
    return [blob.ref for folder in payloads.FOLDERS for blob in await store.blobs(folder)]


async def test_a_value_is_stored_once_by_its_hash_and_read_back(store: PayloadStore) -> None:
    stored = await store.put([VALUE, b"other", VALUE])
    assert [one.hash for one in stored] == [HASH, hashlib.sha256(b"other").digest(), HASH]
    assert stored[0].size == len(VALUE)
    assert await store.get(stored[0].ref, HASH) == VALUE
    assert sorted(await names(store)) == sorted({one.ref for one in stored})
    assert payloads.hash_of(stored[0].ref) == HASH


async def test_a_missing_value_is_named(store: PayloadStore) -> None:
    (stored,) = await store.put([VALUE])
    await store.remove([stored.ref])
    await store.remove([stored.ref])
    assert await store.missing([stored]) == [stored]
    with pytest.raises(errors.PayloadDamaged, match="missing"):
        await store.get(stored.ref, stored.hash)


async def test_a_cleared_store_is_empty_and_can_be_used_again(store: PayloadStore) -> None:
    await store.put([VALUE])
    await store.clear()
    await store.clear()
    assert await names(store) == []
    await store.put([VALUE])
    assert len(await names(store)) == 1


async def test_a_damaged_value_is_refused_and_stored_anew_when_it_comes_again(
    tmp_path: Path,
) -> None:
    store = PayloadStore(str(tmp_path))
    (stored,) = await store.put([VALUE])
    (tmp_path / stored.ref).write_bytes(VALUE[:-1])
    with pytest.raises(errors.PayloadDamaged, match="does not hash"):
        await store.get(stored.ref, stored.hash)
    assert not await store.is_sound(stored.ref, stored.hash)
    await store.put([VALUE])
    assert await store.get(stored.ref, stored.hash) == VALUE


async def test_using_a_value_again_makes_it_young(tmp_path: Path) -> None:
    store = PayloadStore(str(tmp_path))
    (stored,) = await store.put([VALUE])
    os.utime(tmp_path / stored.ref, (1, 1))
    await store.put([VALUE])
    (blob,) = await store.blobs(stored.ref[:2])
    assert blob.touched_at > 1_000_000_000


async def test_a_write_that_fails_leaves_no_value_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(handle: int) -> None:
        raise OSError("disk full")

    store = PayloadStore(str(tmp_path))
    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(errors.Retryable, match="payload store failed"):
        await store.put([VALUE])
    assert await names(store) == []
