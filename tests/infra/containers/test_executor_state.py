"""The state of an executor after its own restart."""

from pathlib import Path

import pytest

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.containers.executor_state import ExecutorState, StateFile


def test_token_and_releases_survive_a_restart(tmp_path: Path) -> None:
    state_file = StateFile(tmp_path)
    assert state_file.state == ExecutorState(-1, {})
    state_file.keep_token(7)
    state_file.keep_release("egest", "1.3")
    state_file.keep_token(9)
    assert StateFile(tmp_path).state == ExecutorState(9, {"egest": "1.3"})


def test_a_file_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="cannot be written"):
        StateFile(tmp_path / "missing").keep_token(1)
    (tmp_path / "executor.json").write_text("{")
    with pytest.raises(Misconfigured, match="correct or remove it"):
        StateFile(tmp_path)
