"""Secrets are read from their variable or file; the error for a missing one names it but never its value."""

import hashlib
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from hifi.pipe.secret import Secret, WriteKey
from hifi.runtime.errors import Misconfigured


def test_read_from_environment_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A_SECRET", "s3cret")
    (tmp_path / "key").write_text("from-file\n")
    assert Secret.model_validate({"env": "A_SECRET"}).read() == "s3cret"
    assert Secret.model_validate({"file": tmp_path / "key"}).read() == "from-file"


def test_the_error_for_a_missing_secret_names_its_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("A_SECRET", raising=False)
    with pytest.raises(Misconfigured, match="A_SECRET is not set"):
        Secret.model_validate({"env": "A_SECRET"}).read()
    with pytest.raises(Misconfigured, match="cannot be read"):
        Secret.model_validate({"file": tmp_path / "none"}).read()
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(Misconfigured, match="is empty"):
        Secret.model_validate({"file": tmp_path / "empty"}).read()


def test_a_secret_that_is_no_text_or_has_no_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(os.environb, b"A_SECRET", b"\xff")
    with pytest.raises(Misconfigured, match="A_SECRET is not UTF-8"):
        WriteKey.model_validate({"env": "A_SECRET"}).digest()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "long").write_text("x" * (2**20 + 1))
    (tmp_path / "bytes").write_bytes(b"\xff")
    for name, reason in (
        ("/dev/zero", "a device or a pipe"),
        ("fifo", "a device or a pipe"),
        (".", "directory"),
        ("long", "1,048,576 characters at most"),
        ("bytes", "decode"),
    ):
        with pytest.raises(Misconfigured, match=f"cannot be read: .*{reason}"):
            Secret.model_validate({"file": tmp_path / name}).read()


def test_a_pipe_cannot_contain_a_secret() -> None:
    for value in ({}, {"env": "A", "file": "b"}, {"value": "s3cret"}, "s3cret"):
        with pytest.raises(ValidationError):
            Secret.model_validate(value)


def test_a_write_key_is_compared_by_its_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "k")
    digest = hashlib.sha256(b"k").hexdigest()
    assert WriteKey.model_validate({"env": "A_KEY"}).digest() == digest
    assert WriteKey.model_validate({"sha256": digest}).digest() == digest
