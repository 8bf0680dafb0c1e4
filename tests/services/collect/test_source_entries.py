"""Only the instance that took over last writes the progress of a source, and it knows all that was written before."""

import pytest
from tests.support.stream_process import create_stream

from hifi.runtime.errors import Fenced
from hifi_collect.polled.entries import SourceEntries
from hifi_collect.settings import CollectSettings


async def test_a_reader_that_was_replaced_writes_nothing(kafka: str) -> None:
    settings = CollectSettings(kafka=kafka, stream=await create_stream(kafka))
    first, second, other_source = (
        SourceEntries(settings, pipe, source)
        for pipe, source in (("orders", "sql/a"), ("orders", "sql/a"), ("orders", "sql/b"))
    )
    try:
        await first.take_over()
        assert first.entries == {}
        await first.keep({"rows": {"n": 1}, "o/1": [1]})
        await first.keep({"rows": {"n": 2**64 - 1}, "o/1": None, "o/2": [2]})
        await second.take_over()
        assert second.entries == {"rows": {"n": 2**64 - 1}, "o/2": [2]} == first.entries
        with pytest.raises(Fenced):
            await first.keep({"rows": {"n": 3}})
        assert first.entries == second.entries
        await second.keep({"rows": {"n": 4}})
        await other_source.take_over()
        assert other_source.entries == {}, "another source of the pipe begins again"
        await first.take_over()
        assert first.entries == {"rows": {"n": 4}, "o/2": [2]}
        with pytest.raises(Fenced):
            await second.keep({"rows": {"n": 5}})
    finally:
        for entries in (first, second, other_source):
            await entries.stop()
