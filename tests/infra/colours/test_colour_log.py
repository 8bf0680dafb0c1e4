"""The record of the colours is written after the newest one only; the writer is a model that can be overtaken."""

from collections.abc import Sequence

import pytest

from hifi.delivery.colours import Colour, Colours, ColourState
from hifi.kafka.fenced_writer import Overtaken
from hifi.kafka.topics import ControlTopics
from hifi.record.record import Record
from hifi.runtime.errors import Retryable
from hifi_infra.colours import colour_log
from hifi_infra.colours.colour_log import ColourLog

HALF = {"blue": 5000, "green": 5000}
BEFORE = Colours(
    {
        "blue": Colour(10_000, ColourState.ACTIVE, (), ""),
        "green": Colour(0, ColourState.IDLE, (), ""),
    },
    (),
    1,
    "test",
)


class ModelledWriter:
    """Writes to a list, unless another one took over since."""

    holder: "ModelledWriter | None" = None

    def __init__(self, _: str, transactional_id: str, __: str) -> None:
        self.transactional_id = transactional_id
        self.written: list[Record] = []

    async def take_over(self) -> None:
        ModelledWriter.holder = self

    async def write(self, topic: str, records: Sequence[Record]) -> int:
        assert (topic, self.transactional_id) == ("c.colours", "c.actor")
        if ModelledWriter.holder is not self:
            raise Overtaken("another one")
        self.written += records
        return 7

    async def stop(self) -> None:
        """Nothing has to end."""


class ReadLog(ColourLog):
    """A log that reads these records, one each time."""

    records: Sequence[Colours] = ()

    async def catch_up(self) -> None:
        self.newest, *self.records = self.records


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> ReadLog:
    monkeypatch.setattr(colour_log, "FencedWriter", ModelledWriter)
    return ReadLog("kafka:9092", ControlTopics("c"), "test")


async def test_what_somebody_else_has_written_meanwhile_is_the_basis_of_the_next_record(log: ReadLog) -> None:
    log.records = [BEFORE, BEFORE.with_shares(HALF, 2, "other")]
    others = [ModelledWriter("", "", "")]

    async def change(newest: Colours | None) -> Colours:
        assert newest is not None
        if others:
            await others.pop().take_over()
        return newest.with_keys("green", 0)

    await log.write(change)
    assert log.newest is not None
    assert (log.newest.shares, log.newest.by, log.newest_offset) == (HALF, "other", 7)
    [record] = log._writer.written  # type: ignore[attr-defined]  # of the model
    assert record == log.newest.record()


async def test_a_writer_that_is_overtaken_every_time_says_that_it_wrote_nothing(log: ReadLog) -> None:
    log.records = [BEFORE] * 9

    async def change(newest: Colours | None) -> Colours:
        assert newest is not None
        await ModelledWriter("", "", "").take_over()
        return newest

    with pytest.raises(Retryable, match="was not written"):
        await log.write(change)
    assert log._writer.written == []  # type: ignore[attr-defined]  # of the model
