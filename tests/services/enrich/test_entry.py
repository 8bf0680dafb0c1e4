"""The arguments that the entry file passes to the parts of the service."""

from typing import Any

import pytest

from hifi.kafka.topics import Topics
from hifi.runtime.service import Service
from hifi_enrich import __main__ as entry
from hifi_enrich.settings import EnrichSettings


async def test_the_topics_are_those_of_the_configured_retry_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def registry(_kafka: str, topics: Topics, _health: Any, _parts: Any) -> Any:
        raise Reached(topics)

    monkeypatch.setattr(entry, "PipeRegistry", registry)
    settings = EnrichSettings(stream="s", tiers="1s,10s")
    with pytest.raises(Reached) as error:
        await entry.enrich(Service("enrich", settings), settings)
    assert error.value.args == (Topics("s", settings.tiers),)
    assert settings.tiers[0].name == "1s"
