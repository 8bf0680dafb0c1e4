"""Output of `hifi up` when the mesh is ready."""

from pathlib import Path

from tests.support.egest.egest_stream import pipe

from hifi_cli.commands.up import _announce
from hifi_cli.display.console import console
from hifi_infra.mesh.mesh import Mesh
from hifi_infra.mesh.plan import Plan


def test_the_example_sends_events_to_ingest_also_where_views_are_served(tmp_path: Path) -> None:
    mesh = Mesh(Plan(tmp_path, port=8080, view_port=8092, views=tmp_path, scale={"view": 1}))
    with console.capture() as capture:
        _announce(mesh, [pipe("http://127.0.0.1:9/d")])
    lines = capture.get().splitlines()
    assert "Read views at http://127.0.0.1:8092, in programs at http://127.0.0.1:8092/v1/views" in lines
    assert any("http://127.0.0.1:8080/v1/pipes/flights/events" in line for line in lines)
