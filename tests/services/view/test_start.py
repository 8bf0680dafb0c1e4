"""Errors of a view that cannot start: what is wrong, where, and how to correct it."""

from pathlib import Path

import pytest
from tests.support.view.view_stream import VIEW

from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_view.settings import ViewSettings
from hifi_view.views import Views, declared_views


def test_without_declarations_it_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="HIFI_VIEW_DECLARATIONS is not set; name the folder"):
        declared_views(ViewSettings())
    with pytest.raises(Misconfigured, match=r"declares no view .* begins with `view: NAME`"):
        declared_views(ViewSettings(view_declarations=tmp_path))


def test_a_wrong_view_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "view.yaml").write_text(VIEW.replace("keep: 24h", "keep: long"))
    with pytest.raises(
        Misconfigured, match=r"view.yaml:6: keep: 'long' is not a duration; write for example"
    ):
        declared_views(ViewSettings(view_declarations=tmp_path))


async def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    health = Health("view", "view")
    settings = ViewSettings(view_data=tmp_path / "views")
    registry = PipeRegistry("127.0.0.1:9", Topics("s"), health)
    first_views, second_views = (Views(settings, [], registry, health) for _ in range(2))
    await first_views.start()
    with pytest.raises(Misconfigured, match=r"another process uses the folder .* \(HIFI_VIEW_DATA\)"):
        await second_views.start()
    await second_views.stop()
    await first_views.stop()
    await second_views.start()
    await second_views.stop()
    (tmp_path / "file").write_text("")
    views_in_file = Views(ViewSettings(view_data=tmp_path / "file" / "views"), [], registry, health)
    with pytest.raises(Misconfigured, match="cannot be written"):
        await views_in_file.start()
