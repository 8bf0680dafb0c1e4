"""The pipes that steps read are found among all that are declared."""

from typing import Any

from hifi.pipe.model import Pipe
from hifi.pipe.source import UnreadableSource
from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_inputs import pipes_read_by_steps

WINDOW: dict[str, Any] = {"key": {"k": "string"}, "window": {"tumbling": "1m"}, "fields": {"n": "count(*)"}}


def declared(name: str, **source: Any) -> Pipe:
    """A pipe with a source of any kind, as a process reads it that has not installed the kind."""
    read_source = UnreadableSource.model_validate(source) if "kind" in source else source
    return Pipe.model_validate(
        {"pipe": name, "source": read_source, "destinations": [{"name": "one", "url": "http://127.0.0.1/"}]}
    )


def test_a_step_reads_its_pipe_and_the_one_that_it_joins() -> None:
    orders, rates = (
        declared("orders", keys=[{"env": "KEY"}]),
        declared("rates", kind="step", **{"from": "orders"}, **WINDOW),
    )
    joined = declared(
        "joined", kind="step", **{"from": "rates"}, join={"with": "payments", "by": "order", "within": "15m"}
    )
    assert pipes_read_by_steps([orders]) == frozenset()
    assert pipes_read_by_steps([orders, rates]) == {"orders"}
    assert pipes_read_by_steps([joined, rates]) == {"orders", "rates", "payments"}
    join = {"with": "payments", "within": "15m", "fields": {"paid": "amount"}}
    source = {"kind": "step", "from": "orders", "key": {"order": "string"}, "join": join}
    destinations = joined.model_dump(by_alias=True)["destinations"]
    read = Pipe.model_validate({"pipe": "joined", "source": source, "destinations": destinations})
    assert isinstance(read.source, StepSource)
    assert pipes_read_by_steps([read]) == {"orders", "payments"}
