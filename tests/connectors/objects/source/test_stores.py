"""A version of an object is read as it was listed, or not at all."""

import errno
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.support.objects.polled_objects import PolledBucket, PolledFolder

from hifi.runtime.errors import Retryable
from hifi_objects.declaration import ObjectsSource, S3Settings
from hifi_objects.source.bucket import ReadableBucket
from hifi_objects.source.folder import ReadableFolder
from hifi_objects.source.store import ReadableStore
from hifi_objects.source.version import ObjectGone, ObjectVersion


async def check_versions(folder: PolledFolder, store: ReadableStore) -> None:
    """List, open, replace and remove objects."""
    folder.put("a/b.txt", b"first")
    folder.put("a/.hidden", b"")
    folder.put("_work/c", b"")
    (first_object,) = await store.listed()
    assert (first_object.path, first_object.size) == ("a/b.txt", 5)
    async with store.opened(first_object) as open_object:
        assert open_object.file.read() == b"first"
        open_object.check()
    assert await store.listed() == [first_object]
    folder.put("a/b.txt", b"second")
    (second_object,) = await store.listed()
    assert second_object.version != first_object.version
    with pytest.raises(ObjectGone, match=r"a/b\.txt"):
        async with store.opened(first_object):
            pass
    folder.remove("a/b.txt")
    with pytest.raises(ObjectGone, match="was removed"):
        async with store.opened(second_object):
            pass
    assert await store.listed() == []


async def test_versions_of_files(folder: PolledFolder) -> None:
    await check_versions(folder, ReadableFolder(folder.root))


async def test_versions_of_objects_of_a_bucket(bucket: PolledBucket) -> None:
    source = ObjectsSource.model_validate({"kind": "objects", "format": "csv", **bucket.declared()})
    assert source.s3 is not None
    await check_versions(bucket, ReadableBucket(source.s3, "shop", None))


async def test_a_file_that_is_removed_while_it_is_read_is_read_and_one_that_is_written_to_is_not(
    folder: PolledFolder,
) -> None:
    store = ReadableFolder(folder.root)
    folder.put("one", b"content")
    (version,) = await store.listed()
    async with store.opened(version) as open_object:
        folder.remove("one")
        assert open_object.file.read() == b"content"
        open_object.check()
    folder.put("two", b"content")
    (remaining_version,) = await store.listed()
    async with store.opened(remaining_version) as open_object:
        with (folder.root / "two").open("ab") as file:
            file.write(b"more")
        with pytest.raises(ObjectGone, match="was changed"):
            open_object.check()


async def test_links_to_outside_of_the_folder_and_refused_files_are_left_out(
    folder: PolledFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (folder.root / "link").symlink_to(secret)
    folder.put("own", b"a password of hifi")
    folder.put("one", b"1")
    monkeypatch.setenv("HIFI_KAFKA_SECURITY_PASSWORD_FILE", str(folder.root / "own"))
    assert [version.path for version in await ReadableFolder(folder.root).listed()] == ["one"]


async def test_names_that_are_no_utf_8_are_read_and_what_is_no_file_is_left_out(folder: PolledFolder) -> None:
    names = [b"caf\xe9.csv", b"a\nb", b"\xff\xfe", "ü".encode()]
    for name in names:
        (folder.root / os.fsdecode(name)).write_bytes(name)
    os.mkfifo(folder.root / "pipe")
    store = ReadableFolder(folder.root)
    versions = await store.listed()
    assert {os.fsencode(version.path) for version in versions} == {*names}
    assert {version.shown_path for version in versions} == {"caf\\xe9.csv", "a\\x0ab", "\\xff\\xfe", "ü"}
    for version in versions:
        assert ObjectVersion.read(orjson.loads(orjson.dumps(version.entry()))) == version
        async with store.opened(version) as open_object:
            assert open_object.file.read() == os.fsencode(version.path)
    folder.remove(os.fsdecode(b"\xff\xfe"))
    deleted_version = next(version for version in versions if version.path.startswith("\udcff"))
    with pytest.raises(ObjectGone) as raised:
        async with store.opened(deleted_version):
            pass
    assert str(raised.value).encode() == b"the file \\xff\\xfe was removed"


async def test_what_cannot_be_looked_at_is_told_and_the_rest_is_listed(
    folder: PolledFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed/b", "open/c"):
        folder.put(name, b"1")
    (folder.root / "loop").symlink_to(folder.root / "loop")
    (folder.root / "dangling").symlink_to(folder.root / "none")
    scandir = os.scandir

    def guarded(path: str) -> Any:
        """List a folder as one who is not root, if it is another than `closed`."""
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    store = ReadableFolder(folder.root)
    assert sorted(version.path for version in await store.listed()) == ["a", "open/c"]
    assert sorted(store.problems) == [
        f"the file {folder.root}/loop cannot be looked at: Too many levels of symbolic links",
        f"the folder {folder.root}/closed cannot be listed: Permission denied",
    ]
    monkeypatch.undo()
    (folder.root / "loop").unlink()
    assert len(await store.listed()) == 3
    assert store.problems == []


async def test_a_folder_that_does_not_exist_can_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="cannot be listed"):
        await ReadableFolder(tmp_path / "none").listed()


async def test_a_bucket_that_does_not_exist_or_refuses_the_key_is_told(
    bucket: PolledBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = bucket.declared()["s3"]
    for overrides, message in (
        ({"bucket": "none"}, "the bucket none: .* 404 Not Found"),
        ({"secret_key": {"env": "TEST_WRONG"}}, "the bucket lake: .* 403 "),
    ):
        monkeypatch.setenv("TEST_WRONG", "wrong")
        with pytest.raises(Retryable, match=message):
            await ReadableBucket(S3Settings.model_validate(declared | overrides), "shop", None).listed()
