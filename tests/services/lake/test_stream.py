"""Tables of pipes that lake takes from the stream, and none where they would lose events."""

from types import SimpleNamespace
from typing import Any

import pytest

from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_lake.stream import LakeStream

PIPE = Pipe.model_validate(
    {
        "pipe": "p",
        "source": {"keys": [{"env": "KEY"}]},
        "enrich": {"fields": {"id": "int"}},
        "destinations": [
            {
                "name": "lake",
                "kind": "iceberg",
                "settings": {"warehouse": "/srv/lake", "table": "a.b", "mode": "upsert", "key": ["id"]},
            }
        ],
    }
)


async def test_no_table_with_a_row_for_each_key_is_opened_in_a_stream_with_colours() -> None:
    registry: Any = SimpleNamespace(coloured=False, in_use=lambda: [PipeRevision(PIPE, 1, 1)])
    election: Any = None
    topics = Topics("s")
    watermarks = PublishedWatermarks("127.0.0.1:1", "i", topics)
    stream = LakeStream(
        "127.0.0.1:1", "i", topics, registry, lambda: "", election, Health("lake", "i"), watermarks
    )
    assert stream.table(("p", "lake")).settings.table == "a.b"
    registry.coloured = True
    with pytest.raises(Misconfigured, match=r"the stream has two colours.*its deliveries wait"):
        stream.table(("p", "lake"))
