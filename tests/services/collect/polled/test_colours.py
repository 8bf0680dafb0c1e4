"""Tables and objects in a stream with two colours."""

from pathlib import Path

import pytest

from hifi.errors import Misconfigured
from hifi.pipe.sources.objects import ObjectsSource
from hifi_collect.settings import CollectSettings
from hifi_collect.source_readers import _polled_source


def test_with_two_colours_no_table_and_no_folder_is_read_because_the_other_colour_would_read_it_again(
    tmp_path: Path,
) -> None:
    source = ObjectsSource.model_validate({"kind": "objects", "folder": str(tmp_path), "format": "ndjson"})
    settings = CollectSettings(instance="i")
    assert _polled_source(settings, "orders", source).name
    with pytest.raises(Misconfigured, match="two colours"):
        _polled_source(
            settings.model_copy(update={"collect_colours": "control", "collect_colour": "blue"}),
            "orders",
            source,
        )
