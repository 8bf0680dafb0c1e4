"""Another setup for a colour that wakes: what it may be, and when it needs a new stream. No process runs."""

from pathlib import Path

import pytest

from hifi.delivery.colours import ColourSetup
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours.colour_mesh import ColourAddress, ColourMesh, colour_topics
from hifi_infra.colours.new_setup import SetupChange, read_settings, set_aside
from hifi_infra.java.jars import kafka_versions
from hifi_infra.mesh import running
from hifi_infra.mesh.running import RunningMesh

NEWEST = list(kafka_versions())[-1]


def write_running_mesh(folder: Path, partitions: int) -> None:
    folder.mkdir()
    (folder / "record").write_text("a record")
    mesh = RunningMesh(
        pid=1,
        created=1,
        stream="s",
        kafka="",
        brokers=1,
        url="",
        trigger="auto",
        partitions=partitions,
    )
    running.write(folder, mesh)


def test_a_colour_keeps_what_a_change_does_not_name() -> None:
    setup_before = ColourSetup(4, NEWEST, "/releases/1", {"HIFI_A": "1", "HIFI_B": "2"})
    assert SetupChange().of(setup_before) == setup_before
    setup = SetupChange(partitions=8, settings={"HIFI_A": "", "HIFI_C": "3"}).of(setup_before)
    assert setup == ColourSetup(8, NEWEST, "/releases/1", {"HIFI_B": "2", "HIFI_C": "3"})
    assert SetupChange(release="installed").of(setup_before).release == ""
    assert not SetupChange()
    assert SetupChange(partitions=8)


def test_what_no_colour_can_run_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    SetupChange(8, NEWEST, str(tmp_path), {"HIFI_ENRICH_DRIVER_MEMORY": "2g"}).check()
    with pytest.raises(Misconfigured, match=f"no jars of Kafka 1.0.0: .*{NEWEST}"):
        SetupChange(kafka_version="1.0.0").check()
    with pytest.raises(Misconfigured, match="is no release"):
        SetupChange(release=str(tmp_path / "services")).check()
    for name in ("PATH", "HIFI_KAFKA", "HIFI_CONTROL"):
        with pytest.raises(Misconfigured, match=f"{name} cannot be set for one colour"):
            SetupChange(settings={name: "x"}).check()
    with pytest.raises(Misconfigured, match="expected NAME=VALUE"):
        read_settings(["HIFI_A"])
    assert read_settings(["HIFI_A=b=c", "HIFI_D="]) == {"HIFI_A": "b=c", "HIFI_D": ""}


def test_another_number_of_partitions_sets_the_old_stream_aside_and_keeps_it_whole(tmp_path: Path) -> None:
    folder = tmp_path / "green"
    assert set_aside(folder, 8) is None
    write_running_mesh(folder, 4)
    assert set_aside(folder, 4) is None
    assert set_aside(folder, 8) == tmp_path / "green-4-partitions"
    assert (tmp_path / "green-4-partitions" / "record").read_text() == "a record"
    assert not folder.exists()
    write_running_mesh(folder, 4)
    assert set_aside(folder, 8) == tmp_path / "green-4-partitions-2"


def test_the_stream_of_a_mesh_that_has_not_ended_is_not_set_aside(tmp_path: Path) -> None:
    folder = tmp_path / "green"
    write_running_mesh(folder, 4)
    with running.lock(folder), pytest.raises(Retryable, match="the mesh of green still ends"):
        set_aside(folder, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["green"]
    assert set_aside(folder, 8) == tmp_path / "green-4-partitions"


async def test_the_processes_of_a_colour_get_its_release_and_its_settings(tmp_path: Path) -> None:
    release = tmp_path / "release"
    (release / "services" / "enrich").mkdir(parents=True)
    arguments = tmp_path / "told"
    expression = "os.environ.get('PYTHONPATH', '') + ' ' + os.environ['HIFI_A']"
    script = f"import os; open({str(arguments)!r}, 'w').write({expression})"
    mesh = ColourMesh(
        ColourAddress("green", tmp_path, 1, 2, 3),
        lambda _, setup: ["python3", "-c", script, str(setup.partitions)],
        colour_topics("s", "green"),
        "localhost:1",
        {"HIFI_A": "as started"},
        tmp_path / "log",
    )
    await mesh.start(ColourSetup(release=str(release), settings={"HIFI_A": "own"}))
    assert await mesh.process.wait() == 0, mesh.process.tail()
    path, _, setting = arguments.read_text().rpartition(" ")
    assert path.split(":")[0] == str(release / "services" / "enrich")
    assert setting == "own"
    await mesh.start(ColourSetup())
    assert await mesh.process.wait() == 0, mesh.process.tail()
    assert str(release) not in arguments.read_text()
    assert arguments.read_text().endswith(" as started")
