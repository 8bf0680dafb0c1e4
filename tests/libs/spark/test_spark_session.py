"""Temporary folders and Java options of Spark."""

import os
from pathlib import Path

from hifi.spark.spark_session import JVM_OPTIONS, executor_options, scratch_folder


def test_scratch_folders_are_deleted_with_their_process(tmp_path: Path) -> None:
    killed_scratch, live_scratch, other_scratch = (
        tmp_path / f"hifi-enrich-{name}" for name in ("99999999-a", f"{os.getppid()}-b", "c")
    )
    for scratch in (killed_scratch, live_scratch, other_scratch):
        scratch.mkdir()
    with scratch_folder(str(tmp_path)) as folder:
        (folder / "x").touch()
        assert not killed_scratch.exists()
    assert set(tmp_path.iterdir()) == {live_scratch, other_scratch}


def test_executors_compile_large_methods_as_the_driver_does_whatever_else_is_set() -> None:
    for conf in ({}, {"spark.executor.extraJavaOptions": "-Xss8m"}):
        options = executor_options(conf).split()
        assert "-XX:-DontCompileHugeMethods" in options
        assert "-XX:-DontCompileHugeMethods" in JVM_OPTIONS.split()
        assert ("-Xss8m" in options) == bool(conf)
