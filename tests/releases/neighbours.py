"""The releases before and after the one that is here, as folders of packages that a mesh can run.

There is no release after it yet: it is made from the files that are here. Each event that it accepts has one more
header, and each JSON object that it writes to a control topic one more key. It calls itself `AFTER`.
"""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from hifi.runtime.release import VERSION

ROOT: Final = Path(__file__).parents[2]
FIRST_CANDIDATE: Final = "e81402341c006ca5efaacf122abba2f5ebe31e87"
"""The commit of 0.1.0rc1, for clones without its tag."""
AFTER: Final = "9.9.9"
_TOPS: Final = ("libs", "infra", "connectors", "services")
_HEADER_AFTER: Final = "packed_headers = [identity, hop] if position is None else [identity, hop, position]\n"
_ADDED_HEADER: Final = '        packed_headers.append(("hifi_added", b"1"))\n'
_KEY_AFTER: Final = 'raise Overloaded("the producer is stopping")\n'
_ADDED_KEY: Final = "        records = _with_added_key(topic, records)\n"
_ADDED_FUNCTION: Final = """

def _with_added_key(topic, records):
    if topic.rpartition(".")[2] not in (
        "accepted", "alarms", "destinations", "key-usage", "key-uses", "minutes", "pipes", "source-positions",
        "source-progress", "write-keys",
    ):
        return records
    return [
        record._replace(value=record.value[:-1] + b',"added":1}')
        if (record.value or b"").startswith(b'{"') and record.value.endswith(b"}") else record
        for record in records
    ]
"""


def write_release_before(folder: Path) -> None:
    """Write the newest release that is tagged and is not this commit, else `FIRST_CANDIDATE`.

    The test is skipped in a clone without its history.
    """
    # Without the setting, Git takes a candidate for newer than its release.
    tags = _git("-c", "versionsort.suffix=rc", "tag", "--list", "v*", "--sort=-v:refname").decode().split()
    head_tags = set(_git("tag", "--points-at", "HEAD").decode().split())
    write_release(next((tag for tag in tags if tag not in head_tags), FIRST_CANDIDATE), folder)


def write_release(commit: str, folder: Path, top_folders: Sequence[str] = _TOPS) -> None:
    """Write the packages of a commit; the test is skipped in a clone without it."""
    try:
        folders = _git("ls-tree", "--name-only", commit, *top_folders).decode().split()
    except subprocess.CalledProcessError:
        pytest.skip(f"this clone has no history up to {commit}")
    with tarfile.open(fileobj=io.BytesIO(_git("archive", commit, *folders))) as packed:
        packed.extractall(folder, filter="data")


def release_text(commit: str, file: str) -> str:
    """A file of a commit."""
    return _git("show", f"{commit}:{file}").decode()


def write_release_after(folder: Path) -> None:
    """Write the packages that are here with what the next release may add."""
    for file in _git("ls-files", *_TOPS).decode().split():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, folder / file)
    release = folder / "libs/hifi/runtime/release.py"
    release.write_text(release.read_text("utf-8").replace(f'"{VERSION}"', f'"{AFTER}"'), "utf-8")
    _insert(folder / "libs/hifi/record/raw_record.py", _HEADER_AFTER, _ADDED_HEADER)
    producer = folder / "libs/hifi/kafka/producer.py"
    _insert(producer, _KEY_AFTER, _ADDED_KEY)
    producer.write_text(producer.read_text("utf-8") + _ADDED_FUNCTION, "utf-8")


def _insert(file: Path, text: str, added_text: str) -> None:
    source = file.read_text("utf-8")
    assert source.count(text) == 1, (file, text)
    file.write_text(source.replace(text, text + added_text), "utf-8")


def _git(*args: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *args], check=True, capture_output=True).stdout
