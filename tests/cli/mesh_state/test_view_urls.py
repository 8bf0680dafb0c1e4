"""URLs of the views of a mesh, and of each colour, for `hifi view`."""

from pathlib import Path

import pytest
from tests.support.described_mesh import describe
from tests.support.view.declared import PIPE, VIEW

from hifi.delivery.colours import ColourSetup
from hifi.runtime.errors import Misconfigured
from hifi_cli.mesh_state.colour_command import MeshOptions, mesh_command
from hifi_cli.mesh_state.target import view_urls
from hifi_infra.colours.colour_mesh import ColourAddress
from hifi_infra.mesh import running


def test_the_views_of_both_colours_are_asked_unless_one_is_asleep(tmp_path: Path) -> None:
    colours = {name: tmp_path / name for name in ("blue", "green")}
    describe(tmp_path, colours=colours)
    for number, folder in enumerate(colours.values(), 1):
        describe(folder, view=f"http://127.0.0.1:{number}")
    with running.lock(tmp_path), running.lock(colours["blue"]):
        with pytest.raises(
            Misconfigured, match="green does not run, and rows that only it has would be missing"
        ):
            view_urls(tmp_path, [])
        assert view_urls(colours["blue"], []) == ["http://127.0.0.1:1"]
        with running.lock(colours["green"]):
            assert view_urls(tmp_path, []) == ["http://127.0.0.1:1", "http://127.0.0.1:2"]
            describe(colours["green"])
            with pytest.raises(Misconfigured, match="green serves no views: add a file"):
                view_urls(tmp_path, [])
    assert view_urls(tmp_path, ["http://a/"]) == ["http://a"]
    with pytest.raises(Misconfigured, match="give the address of view with --url"):
        view_urls(tmp_path, [])


def test_each_colour_serves_views_on_a_port_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "flights.yaml").write_text(PIPE)
    command = mesh_command("s", tmp_path, MeshOptions())
    address = ColourAddress("blue", tmp_path / "blue", 1, 2, 3)
    assert "--view-port" not in command(address, ColourSetup())
    (tmp_path / "view.yaml").write_text(VIEW)
    argv = command(address, ColourSetup())
    assert argv[argv.index("--view-port") + 1] == "3"
