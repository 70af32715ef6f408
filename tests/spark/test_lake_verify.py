"""Goal: whatever is wrong with the lake is found, and named by its dataset, partition and blocks.

Method: a real lake, compacted by a real Spark; bytes are flipped, rows dropped, folders swapped and
records changed, each in a partition of its own, and everything is verified in one go.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tests.spark.test_compaction import Compactor
from tests.spark.test_source import filled
from tests.sparks import Chain
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.lake.versions import Version
from unfork.verify import lake
from unfork.verify.lake import Report


async def verified(compactor: Compactor) -> Report:
    return await lake.verify(
        compactor.chain.spark,
        compactor.place,
        compactor.raw,
        compactor.versions,
        config=str(compactor.chain.file),
    )


def found(report: Report) -> set[tuple[str, str, str]]:
    return {(one.dataset, one.key, one.check) for one in report.damaged}


def path_of(compactor: Compactor, version: Version) -> Path:
    root = Path(compactor.storage.root.removeprefix("file://"))
    return root / version.location / version.files[0].name


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


async def forge(compactor: Compactor, version: Version, rows: pa.Table) -> None:
    """Puts other rows into a file, and its new hash into the record, as no accident would."""
    path = path_of(compactor, version)
    parquet.write_table(rows, path)
    digest = compactor.storage.sha256(f"{version.location}/{path.name}").hex()
    await compactor.chain.place.app_rows(
        "UPDATE {app}.lake_versions"
        " SET files = jsonb_set(files, '{0,sha256}', to_jsonb(%(digest)s::text))"
        " WHERE version = %(version)s",
        digest=digest,
        version=version.version,
    )


async def test_every_kind_of_damage_is_found_and_named(chain: Chain) -> None:
    tree = Tree(Knobs(density=3, hostile=True, finality_lag=5, proven=True))
    tree.extend(49)
    await filled(chain.place, tree, finality_depth_min=5)
    compactor = Compactor(chain, "blocks", "transactions", "logs", blocks=10, threshold=5)
    assert len(await compactor.all()) == 12
    report = await verified(compactor)
    assert report.damaged == []
    assert (report.versions, report.blocks, report.compared) == (12, 40, 12)
    assert report.document()["ok"] is True
    by_key = {(one.dataset, one.key): one for one in await compactor.versions.current()}

    flip(path_of(compactor, by_key["logs", "0-9"]))
    dropped = by_key["logs", "10-19"]
    rows = parquet.read_table(path_of(compactor, dropped))
    await forge(compactor, dropped, rows.slice(1))
    # Two folders that changed places.
    one, other = by_key["logs", "20-29"], by_key["logs", "30-39"]
    folders = [path_of(compactor, version).parent for version in (one, other)]
    folders[0].rename(folders[0].with_name("aside"))
    folders[1].rename(folders[0])
    folders[0].with_name("aside").rename(folders[1])
    path_of(compactor, by_key["transactions", "0-9"]).unlink()
    altered = by_key["transactions", "20-29"]
    rows = parquet.read_table(path_of(compactor, altered))
    nonces = [rows["nonce"][0].as_py() + 1, *rows["nonce"].to_pylist()[1:]]
    place = rows.schema.get_field_index("nonce")
    altered_rows = rows.set_column(place, rows.schema.field(place), pa.array(nonces, pa.int64()))
    await forge(compactor, altered, altered_rows)
    await chain.place.rows("UPDATE {raw}.transactions SET gas = gas + 1 WHERE block_number = 15")
    await chain.place.app_rows(
        "UPDATE {app}.lake_versions SET parent_hash = '\\x00'"
        " WHERE dataset = 'blocks' AND first_number = 30"
    )

    report = await verified(compactor)
    assert not report.ok
    number = altered_rows["block_number"][0].as_py()
    assert found(report) >= {
        ("logs", "0-9", "files"),
        ("logs", "10-19", "rows"),
        ("logs", "20-29", "files"),
        ("logs", "30-39", "files"),
        ("transactions", "0-9", "files"),
        ("transactions", "20-29", "rows"),
        ("transactions", "10-19", "hot"),
        ("blocks", "30-39", "links"),
        ("blocks", "20-29", "blocks"),
    }
    assert ("blocks", "0-9", "blocks") not in found(report)
    named = [one for one in report.damaged if one.key == "20-29" and one.check == "blocks"]
    assert {(one.span.first, one.span.last) for one in named} == {(number, number)}
    assert any("transaction" in one.why for one in named)
