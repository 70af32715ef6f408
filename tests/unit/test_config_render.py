"""Goal: the starter file says the truth about the configuration.

Method: it is loaded as it is, and with every setting uncommented; both give the defaults.
"""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import dotenv
import pytest

from unfork.config import describe, render, tree
from unfork.config.load import load


def test_the_starter_file_as_written_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "unfork.yaml").write_text(render.starter())
    assert load(env={}, folder=tmp_path).config.model_dump(exclude={"data_dir"}) == (
        tree.Config().model_dump(exclude={"data_dir"})
    )


def test_every_setting_of_the_starter_file_is_its_default(tmp_path: Path) -> None:
    uncommented = re.sub(r"^#( *(?:- )?[a-z_]+:)", r"\1", render.starter(), flags=re.MULTILINE)
    assert not re.search(r"^#[^ \n]", uncommented, flags=re.MULTILINE), "all are uncommented"
    (tmp_path / "unfork.yaml").write_text(uncommented)
    config = load(env={}, folder=tmp_path).config
    expected = tree.Config(chains=(tree.Chain(name="ethereum"),))
    assert config == expected.model_copy(update={"data_dir": str(tmp_path / ".unfork")})


def test_every_key_says_what_it_is() -> None:
    for key in describe.keys():
        assert len(key.sentence) > 10, key.dotted
        assert key.sentence.endswith("."), key.dotted


def test_the_example_environment_offers_every_short_name_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    values = dotenv.dotenv_values(stream=StringIO(render.dotenv()), interpolate=False)
    assert not caplog.records, "the reader of .env files complains of a line it cannot read"
    assert set(values.values()) == {""}
    assert set(values) == {
        "DB_RAW_URL",
        "DB_APP_URL",
        "SYNC_CONFIRMATIONS",
        "DENORMALIZE_EVENTS",
        "PAYLOAD_INLINE_MAX_BYTES",
        "SWEEP_GRACE",
        "RANGE_SIZE",
        "SNAPSHOT_MAX_S",
        "MAX_REORG_DEPTH",
        "ORPHAN_KEEP",
    }
