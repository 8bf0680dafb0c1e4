"""Credentials for brokers in containers: made once, kept, and completed when something is missing."""

import subprocess
import sys
from pathlib import Path

from hifi.runtime.signed_document import SigningKey
from hifi_infra.kafka import certificates


def make(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "hifi_infra.kafka.make_credentials", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_everything_is_made_once_and_only_what_is_missing_later(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    assert make(folder, "--stream", "s", "--host", "one").returncode == 0
    first_content = content(folder)
    users = {"admin", "broker", "s.ingest", "s.normalize", "s.enrich", "s.egest", "s.retrier", "s.observe"}
    assert {f"users/{user}" for user in users} <= first_content.keys()
    assert len(set(first_content.values())) == len(first_content), "no password is used twice"
    assert certificates.host_names(first_content["broker.pem"]) == {"localhost", "one"}
    assert {path.stat().st_mode & 0o077 for path in folder.rglob("*") if path.is_file()} == {0}

    assert make(folder, "--stream", "s", "--host", "one").returncode == 0
    assert content(folder) == first_content

    assert make(folder, "--stream", "s", "--host", "one", "--host", "two").returncode == 0
    second_content = content(folder)
    assert {name for name in first_content if second_content[name] != first_content[name]} == {"broker.pem"}
    assert certificates.host_names(second_content["broker.pem"]) == {"localhost", "one", "two"}


def test_the_key_of_reports_is_made_once_and_only_the_private_one_is_hidden(tmp_path: Path) -> None:
    folder, key = tmp_path / "kafka", tmp_path / "report_key"
    for _ in range(2):
        assert make(folder, "--report-key", str(key)).returncode == 0
        first_key = SigningKey.read(key).public_key
    assert SigningKey.read(key).public_key == first_key
    assert (key.stat().st_mode & 0o777, (tmp_path / "report_key.pub").stat().st_mode & 0o777) == (
        0o600,
        0o644,
    )


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    completed = make(tmp_path / "file")
    assert completed.returncode == 2
    assert str(tmp_path / "file") in completed.stderr
    assert "Traceback" not in completed.stderr
