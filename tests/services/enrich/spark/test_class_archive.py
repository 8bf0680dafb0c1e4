"""Class-data archives do not pile up: those used last stay, and no process that has one open notices."""

import mmap
import os
from pathlib import Path

import pytest

from hifi_enrich.spark.class_archive import KEPT, archive_options, archive_path, remove_old_archives

HOUR_NS = 3600 * 1_000_000_000


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "hifi"
    folder.mkdir()
    return folder


def make_archives(count: int) -> list[Path]:
    """Archives of several class paths, read-only as the JVM makes them, the one used last first."""
    archives = [archive_path("", [Path(f"/jars/{number}.jar")]) for number in range(count)]
    for hours, archive in enumerate(archives, 1):
        archive.write_bytes(b"classes")
        archive.chmod(0o444)
        at_ns = archive.stat().st_mtime_ns - hours * HOUR_NS
        os.utime(archive, ns=(at_ns, at_ns))
    return archives


def test_only_the_archives_used_last_stay_and_nothing_else_is_touched(cache: Path) -> None:
    other_files = [cache / name for name in ("kafka-1.jsa", "spark-1.txt", "jars")]
    other_files[2].mkdir()
    for file in other_files[:2]:
        file.write_text("")
    archives = make_archives(KEPT + 4)
    assert set(remove_old_archives(cache)) == set(archives[KEPT:])
    assert set(cache.iterdir()) == {*archives[:KEPT], *other_files}
    assert remove_old_archives(cache) == []


def test_an_archive_that_a_jvm_is_started_with_counts_as_used(cache: Path) -> None:
    archives = make_archives(KEPT + 1)
    oldest_archive = archives[-1]
    assert f"-XX:SharedArchiveFile={oldest_archive} " in archive_options(oldest_archive)
    assert remove_old_archives(cache) == [archives[-2]]
    assert archive_options(archives[-2]) == "", "a JVM starts without one that is gone"


def test_a_process_that_has_mapped_a_removed_archive_goes_on_with_it(cache: Path) -> None:
    archives = make_archives(KEPT + 1)
    with archives[-1].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        assert remove_old_archives(cache) == [archives[-1]]
        assert mapping[:] == b"classes"


def test_an_archive_that_another_process_removes_meanwhile_is_no_failure(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = make_archives(KEPT + 3)
    listed_archives = list(cache.glob("*.jsa"))
    monkeypatch.setattr(Path, "glob", lambda *_: iter(listed_archives))
    archives[-1].unlink()
    remove_old_archives(cache)
    assert set(cache.iterdir()) == set(archives[:KEPT])


def test_an_archive_that_may_not_be_touched_is_used_all_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [archive] = make_archives(1)

    def refuse(*_: object) -> None:
        raise PermissionError("a read-only file system")

    monkeypatch.setattr(os, "utime", refuse)
    assert str(archive) in archive_options(archive)
