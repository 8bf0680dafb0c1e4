"""The live view of `hifi up` in 80 columns."""

import io
from types import SimpleNamespace

from rich.console import Console

from hifi_cli.display.mesh_view import MeshView
from hifi_infra.mesh.health_probe import Readiness


def instance(name, **readiness):
    return SimpleNamespace(
        name=name,
        ready=not readiness,
        readiness=Readiness(not readiness, "starting" if readiness else "running", readiness),
        restarts=12,
        misconfiguration=None,
        spec=SimpleNamespace(port=8000, service=name.partition("-")[0]),
    )


def test_numbers_and_headings_are_whole():
    instances = [
        instance("ingest-1"),
        instance("normalize-12", registry="the pipe registry is not loaded " * 3),
    ]
    mesh = SimpleNamespace(
        phase="waiting until every service is ready",
        ready=False,
        bootstrap="127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003",
        cluster=SimpleNamespace(brokers=3),
        plan=SimpleNamespace(stream="hifi", trigger="micro-batch"),
        journal=SimpleNamespace(entries=[], listener=None),
        all=lambda: iter(instances),
    )
    console = Console(width=80, file=io.StringIO(), record=True)
    view = MeshView(mesh, console)  # type: ignore[arg-type] # it has what the view reads
    view._rates = {8000: 12_345.6}
    view._memory = {"ingest-1": 12_345 * 1024 * 1024}
    console.print(view._render())
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    words = text.split()
    for phrase in (
        "instance",
        "state",
        "rate",
        "ev/s",
        "memory",
        "restarts",
        "waiting",
        "12,346",
        "12,345",
        "12",
    ):
        assert phrase in words, text
