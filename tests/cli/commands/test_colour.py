"""`hifi colour`: the commands without options; what they do is tested with real meshes in tests/infra/colours."""

import pytest


@pytest.mark.parametrize(
    "command",
    [["status"], ["split"], *([one, "green"] for one in ("shift", "drain", "sleep", "wake"))],
    ids=" ".join,
)
def test_every_command_works_without_options_and_names_what_is_missing(hifi, tmp_path, command) -> None:
    status, _, error = hifi("colour", *command, "--data", tmp_path)
    assert status == 1, error
    assert "no stream with two colours is running" in error
