"""Finding the jars of a Spark process."""

from pathlib import Path

import pytest

from hifi.runtime.errors import Misconfigured
from hifi.spark import jars


def test_missing_and_truncated_jars_are_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_JARS", str(tmp_path))
    locked = jars.locked_jars("spark")
    for jar in locked[1:]:
        with (tmp_path / jar.file_name).open("wb") as file:
            file.truncate(jar.size_bytes)
    (tmp_path / locked[0].file_name).write_bytes(b"short")
    with pytest.raises(Misconfigured, match=r"hifi_infra\.java\.jars") as refusal:
        jars.installed_jars("spark")
    assert [jar.file_name for jar in locked if jar.file_name in str(refusal.value)] == [locked[0].file_name]
    with (tmp_path / locked[0].file_name).open("wb") as file:
        file.truncate(locked[0].size_bytes)
    assert jars.installed_jars("spark") == [tmp_path / jar.file_name for jar in locked]


def test_the_folder_is_hifi_jars_or_in_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HIFI_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert jars.jar_folder() == Path("/caches/hifi/jars")
    monkeypatch.setenv("HIFI_JARS", "/elsewhere")
    assert jars.jar_folder() == Path("/elsewhere")
