"""`hifi colour`: the commands without options; what they do is tested with real meshes in tests/infra/colours."""

import pytest


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["shift", "green"],
        # They look for the stream as these do.
        *(
            pytest.param(line.split(), marks=pytest.mark.more)
            for line in ("split", "drain green", "sleep green", "wake green")
        ),
    ],
    ids=" ".join,
)
def test_every_command_works_without_options_and_names_what_is_missing(hifi, tmp_path, command) -> None:
    status, _, error = hifi("colour", *command, "--data", tmp_path)
    assert status == 1, error
    assert "no stream with two colours is running" in error
