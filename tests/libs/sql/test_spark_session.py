"""Temporary folders of Spark."""

import os
from pathlib import Path

from hifi.sql.spark_session import scratch_folder


def test_scratch_folders_are_deleted_with_their_process(tmp_path: Path) -> None:
    killed, living, other = (
        tmp_path / f"hifi-enrich-{name}" for name in ("99999999-a", f"{os.getppid()}-b", "c")
    )
    for one in (killed, living, other):
        one.mkdir()
    with scratch_folder(str(tmp_path)) as folder:
        (folder / "x").touch()
        assert not killed.exists()
    assert set(tmp_path.iterdir()) == {living, other}
