"""Releases as folders: what runs a service of one, and clear refusals of what is none."""

from pathlib import Path

import pytest

from hifi.control.releases.desired_release import INSTALLED
from hifi.runtime.errors import Misconfigured
from hifi_infra.mesh.release import command_of, release_environment, require_release

COMMAND = ["/usr/bin/python3", "-P", "-m", "hifi_egest"]


def test_the_installed_release_changes_nothing() -> None:
    require_release(INSTALLED, "egest")
    assert command_of(INSTALLED, COMMAND) == COMMAND
    assert release_environment(INSTALLED, {"PYTHONPATH": "/mine"}) == {"PYTHONPATH": "/mine"}


def test_a_virtual_environment_runs_with_its_own_python(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    require_release(str(tmp_path), "egest")
    assert command_of(str(tmp_path), COMMAND) == [str(python), "-P", "-m", "hifi_egest"]
    assert release_environment(str(tmp_path), {"A": "1"}) == {"A": "1"}


def test_packages_of_a_checkout_are_imported_before_what_is_installed(tmp_path: Path) -> None:
    for name in ("libs", "connectors/kafka", "services/egest", "services/normalize"):
        (tmp_path / name).mkdir(parents=True)
    require_release(str(tmp_path), "egest")
    assert command_of(str(tmp_path), COMMAND) == COMMAND
    expected = (
        f"{tmp_path}/libs:{tmp_path}/connectors/kafka:{tmp_path}/services/egest:{tmp_path}/services/normalize"
    )
    assert release_environment(str(tmp_path), {})["PYTHONPATH"] == expected
    assert release_environment(str(tmp_path), {"PYTHONPATH": "/mine"})["PYTHONPATH"] == f"{expected}:/mine"


def test_what_is_no_release_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="is no folder"):
        require_release(str(tmp_path / "absent"), "egest")
    (tmp_path / "services" / "normalize").mkdir(parents=True)
    with pytest.raises(Misconfigured, match="neither bin/python nor services/egest nor libs"):
        require_release(str(tmp_path), "egest")
