"""A step on a log in memory, with real Spark: what Kafka keeps of it, and faults between any two of its writes."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import DataFrame, SparkSession
from tests.support.state.stamped_log import OTHER, PIPE, START_MS, StampedLog

from hifi.pipe.model import Pipe
from hifi.pipe.sources.event import SourceEvent
from hifi.pipe.sources.step import StepSource
from hifi.record.fields import fields
from hifi.record.headers import REASON
from hifi.record.identity import identity
from hifi.record.source_position import SourcePosition
from hifi.runtime.errors import Misconfigured
from hifi.spark.catalyst import Catalyst
from hifi.spark.step_check import enriched_types
from hifi_normalize.idempotency.source_positions import SourcePositions
from hifi_state.fold.colour_times import ColourTimes, OtherColour, other_colour
from hifi_state.fold.dead_letters import LetterRecord
from hifi_state.fold.declaration import StepDeclaration
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.progress import Progress
from hifi_state.fold.range_folder import FoldedRange, RangeFolder
from hifi_state.fold.step_file import step_file
from hifi_state.fold.window_file import WindowFile
from hifi_state.step_turn import StepTurn

SCHEMA = (
    "partition int, offset bigint, key binary, value binary, headers array<struct<key string, value binary>>"
)
DESTINATIONS = [{"name": "shop", "url": "https://shop.example/"}]
FLIGHTS = Pipe.model_validate(
    {
        "pipe": "flights",
        "source": {"keys": [{"env": "KEY"}]},
        "enrich": {
            "fields": {"carrier": "string", "delay": "int", "price": "double", "cancelled": "boolean"}
        },
        "destinations": DESTINATIONS,
    }
)
OTHERS = FLIGHTS.model_copy(update={"pipe": OTHER})
"""The pipe that a join reads, too."""
_JOIN: dict[str, Any] = {"with": OTHER, "within": "2s", "where": "price > 0", "fields": {"price": "price"}}
JOIN_SOURCE = {"join": _JOIN, "fields": {"delay": "delay", "late": "delay >= 15"}}
"""A step whose results `window_oracle` computes by `within_ms`."""
KEEPING_SOURCE = JOIN_SOURCE | {"join": _JOIN | {"unmatched": "keep"}}

FIELDS = {
    "flights": "count(*)",
    "late": "count_if(delay >= 15)",
    "worst": "max(delay)",
    "mean": "avg(price)",
    "total": "sum(delay)",
}


def step_pipe(window: Mapping[str, Any], lateness: str = "5s", **source: Any) -> Pipe:
    """The pipe whose results `window_oracle` computes.

    Args:
        window: the value of `window`; or `each`, `first` or `join` with its value, and `fields` of a join.
        lateness: of the step.
        **source: further keys of the step.
    """
    kind = dict(window) if window.keys() & {"each", "first", "join"} else {"window": dict(window)}
    fields = {} if window.keys() & {"first", "join"} else {"fields": FIELDS}
    return Pipe.model_validate(
        {
            "pipe": "carrier-delays",
            "source": {
                "kind": "step",
                "from": "flights",
                "where": "NOT cancelled",
                "key": {"carrier": "string"},
                **kind,
                **fields,
                "lateness": lateness,
                **source,
            },
            "destinations": DESTINATIONS,
        }
    )


class Killed(BaseException):
    """The process dies here."""


class StepBench:
    """What is outside the service: the log, `raw`, `dead-letter`, `folds` and the offsets of the group.

    Attributes:
        full_for: partitions that are read alone, since the file is too large.
        results: (end of the window in ms, key) to each result that normalize lets pass, and for each or the first
            events (time in ms, CloudEvents id of the event); for a join, ids of both with a slash.
        letters: (number of the event, reason) to how often it became a dead letter.
        letter_fields: of these letters.
    """

    def __init__(self, spark: SparkSession, stamped_log: StampedLog, pipe: Pipe, folder: Path) -> None:
        self.spark = spark
        self.log = stamped_log
        self.folder = folder
        assert isinstance(pipe.source, StepSource)
        self.step = pipe.source
        self.interval_s = 1.0
        self.now_ms = START_MS
        """When a step begins, or begins to read other pipes."""
        self.most_records = 10**9
        self.bound: Any = self
        """Of ranges: what passes or fails does not change it."""
        self.most_file_bytes = 10**9
        self.full_for: set[int] = set()
        self._catalyst = Catalyst(spark)
        self.pipe = pipe.pipe
        self.range_folder = self.folder_of(self._declaration())
        offsets = dict.fromkeys(stamped_log.ends(), 0)
        joined = None if self.step.join is None else OTHER
        self.kept: bytes = Progress(self._declaration().text, PIPE, 0, offsets, joined=joined).encode()
        self.committed: Mapping[int, int] = {}
        self.ranges = self
        self.results: dict[tuple[int, str], list[dict[str, Any]]] = {}
        self.letters: dict[tuple[int, str], int] = {}
        self.letter_fields: list[Mapping[str, bytes]] = []
        self.kill_at = ""
        self.survived = 0
        """How many results are written before a kill within them, or ranges read before one within a range."""
        self._ranges_read = 0
        self.largest_range = 0
        """Most records of a range that was folded."""
        self.available: Mapping[int, int] = stamped_log.ends()
        self._positions = SourcePositions()
        self._raw_offset = 0
        self.counts: Counter[str] = Counter()
        self.other: StepBench | None = None
        """The other colour of the stream; None: it has none."""
        self.stated: ColourTimes | None = None

    def declare(self, pipe: Pipe) -> None:
        """The step has another declaration from its next turn on."""
        assert isinstance(pipe.source, StepSource)
        self.step = pipe.source
        self.range_folder = self.folder_of(self._declaration())

    def _declaration(self) -> StepDeclaration:
        return StepDeclaration(
            self.step, [enriched_types(self._catalyst, FLIGHTS.enrich) for _ in self.step.inputs]
        )

    async def turn(self) -> StepTurn:
        """An instance that has just been elected."""
        progress = Progress.decode(self.kept)
        return await StepTurn.begin(self, self.range_folder, self, self, progress)  # type: ignore[arg-type]

    async def run(self, cuts: Sequence[Mapping[int, int]]) -> None:
        """Fold up to each cut, and write all results."""
        turn = await self.turn()
        for cut in cuts:
            self.available = cut
            while await turn.round():
                pass
        turn.close()

    def lose_files(self) -> None:
        """Delete the files of the step, which go with the disk of their instance."""
        for file in self.folder.iterdir():
            file.unlink()

    # What `StepTurn` uses of its runner, the progress and the group.

    def folder_of(self, declaration: StepDeclaration) -> RangeFolder:
        return RangeFolder(self._catalyst, self.pipe, declaration, "1,1")

    def open_file(self, folder: RangeFolder) -> WindowFile:
        return step_file(folder, self.folder / f"{self.pipe}.db")

    async def first(self) -> Mapping[int, int]:
        return dict.fromkeys(self.available, 0)

    def require_leadership(self) -> None:
        pass

    @property
    def records(self) -> int:
        return self.most_records

    def passed(self, size_bytes: int) -> None:
        pass

    def count(self, counts: Mapping[str, int]) -> None:
        self.counts.update(counts)

    def show(self, progress: Progress, windows: int) -> None:
        pass

    def require_log(self, offsets: Mapping[int, int], end: Mapping[int, int]) -> None:
        if any(offset > end[partition] for partition, offset in offsets.items()):
            raise Misconfigured("it was made again")

    def begun(self, progress: Progress, *, leaves_out: bool = True) -> Progress:  # noqa: ARG002 - as of a step
        return progress.read_before(self.now_ms)

    def other_colour(self, lateness_ms: int) -> OtherColour | None:
        if self.other is None:
            return None
        return other_colour(self.other.stated, None, lateness_ms, START_MS)

    def state_times(self, progress: Progress) -> None:
        self.stated = progress.own_times

    def warn_full(self, size_bytes: int | None, holding: Collection[int]) -> None:
        self.full_for = set() if size_bytes is None else set(holding)

    async def write_results(self, events: Sequence[SourceEvent], source: bytes, run: bytes) -> None:
        for event in events:
            if self._raw_offset >= self.survived:
                self._die("within the results")
            self._raw_offset += 1
            position = SourcePosition(run, event.position, source)
            if not self._positions.is_copy("carrier-delays", position, self._raw_offset):
                body = orjson.loads(event.data or b"")
                self.results.setdefault(place_of(event, body), []).append(body)
        self._die("after the results")

    async def keep(self, progress: Progress) -> None:
        self._die("before folds")
        self.kept = progress.encode()
        self._die("after folds")

    async def commit(self, offsets: Mapping[int, int]) -> None:
        self._die("before the offset")
        self.committed = offsets

    async def end(self) -> Mapping[int, int]:
        return self.available

    def fold(
        self,
        folder: RangeFolder,
        start: Mapping[int, int],
        end: Mapping[int, int],
        rules: FoldRules,
        *,
        keeps_events: bool = False,
    ) -> FoldedRange:
        if self._ranges_read >= self.survived:
            self._die("within a range")
        self._ranges_read += self.kill_at == "within a range"
        self.largest_range = max(
            self.largest_range, sum(end[partition] - start[partition] for partition in end)
        )
        rows = [
            (partition, offset, record.key, record.value, record.headers)
            for partition, entries in enumerate(self.log.partitions)
            for offset, record in enumerate(entry.record() for entry in entries)
            if start[partition] <= offset < end[partition]
        ]
        folded = folder.fold(self.spark.createDataFrame(rows, SCHEMA), rules, keeps_events=keeps_events)

        def judge_again(fetched_us: int) -> list[LetterRecord]:
            return list(map(LetterRecord.of_row, folded.dead_letters(fetched_us).collect()))

        if not keeps_events:
            folded._judge_again = judge_again
        return folded

    def write_dead_letters(self, letters: DataFrame) -> None:
        self.keep_letters(map(LetterRecord.of_row, letters.collect()))

    async def write_few_letters(self, letters: Sequence[LetterRecord]) -> None:
        self.keep_letters(letters)

    def keep_letters(self, letters: Iterable[LetterRecord]) -> None:
        """Count dead letters that were written."""
        for letter in letters:
            headers = letter.record.headers
            number = int(identity(headers).seq.rpartition(b":")[2])
            self.letter_fields.append(fields(headers))
            reason = self.letter_fields[-1][REASON].decode()
            self.letters[number, reason] = self.letters.get((number, reason), 0) + 1

    def _die(self, point: str) -> None:
        if self.kill_at == point:
            self.kill_at = ""
            raise Killed(point)


def place_of(event: SourceEvent, body: Mapping[str, Any]) -> tuple[int, str]:
    """The place of a result in `StepBench.results`."""
    if "with" in body:
        return joined_place(event.time_us, body)
    if "window_end" not in body:
        assert event.time_us is not None
        return event.time_us // 1000, dict(event.headers)["ce_id"].decode()
    return time_ms(body["window_end"]), body.get("event", body["carrier"])


def joined_place(time_us: int | None, body: Mapping[str, Any]) -> tuple[int, str]:
    """The place of the result of a join, of which each pair has one."""
    assert time_us is not None
    return time_us // 1000, f"{body['event']}/{body['with'] or ''}"


def time_ms(text: str) -> int:
    """A time of a result in milliseconds since 1970 UTC."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def shown(
    results: Mapping[tuple[int, str], Sequence[Mapping[str, Any]]],
) -> dict[tuple[int, str], dict[str, Any]]:
    """The fields of results that were written once, as the oracle has them."""
    for place, bodies in results.items():
        assert len(bodies) == 1, f"{place} has {len(bodies)} results"
    if not all("window_end" in body for (body,) in results.values()):
        return {place: dict(body) for place, (body,) in results.items()}
    field_names = tuple(FIELDS)
    return {
        place: {"start_ms": time_ms(body["window_start"])}
        | {
            name: round(body[name], 9) if name == "mean" and body[name] else body[name]
            for name in field_names
        }
        for place, (body,) in results.items()
    }
