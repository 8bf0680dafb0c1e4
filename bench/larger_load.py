"""The load of `hifi rate` with more pipes, destinations or lookup rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from hifi.pipe.model import Lookup, Pipe
from hifi_cli.demo import flights
from hifi_cli.demo.expected import CANCELLATIONS, DEPARTURES, Deliveries
from hifi_cli.demo.workspace import Workspace
from hifi_cli.rate.event_load import EventLoad

FLEET = "fleet"


@dataclass(frozen=True, slots=True)
class LargerLoad(EventLoad):
    """The load of `hifi rate` with more pipes, destinations or lookup rows.

    Attributes:
        pipes: the load is one pipe's.
        ten: ten destinations that all want every event; at most one of ten and sharing.
        tenth_port: where the last of the ten is; it is not among the deliveries that are judged. 0: with the others.
        sharing: number of destinations, of which each event is wanted by one.
        rows: of one more lookup table, in which every event finds one.
    """

    pipes: int = 1
    ten: bool = False
    tenth_port: int = 0
    sharing: int = 0
    rows: int = 0

    def shape(self, pipes: list[Pipe]) -> list[Pipe]:
        """See EventLoad."""
        [pipe] = EventLoad.shape(self, pipes)
        if self.rows:
            pipe = self._with_fleet(pipe)
        if self.ten or self.sharing:
            pattern = pipe.destinations[0].model_dump(mode="json", exclude_defaults=True)
            destinations = [
                pattern
                | {
                    "name": f"d{number}",
                    "url": self._url(pattern["url"], number),
                    "when": f"distance % {self.sharing} = {number}" if self.sharing else None,
                }
                for number in range(self.sharing or 10)
            ]
            pipe = Pipe.model_validate(
                pipe.model_dump(mode="json", by_alias=True, exclude_defaults=True)
                | {"destinations": destinations}
            )
        return [pipe, *(_renamed(pipe, number) for number in range(1, self.pipes))]

    def write(self, workspace: Workspace, count: int, first: int) -> dict[str, Deliveries]:
        """See EventLoad."""
        expected = EventLoad.write(self, workspace, count, first)
        if self.rows:
            sizes = {row["carrier"]: number for number, row in enumerate(flights.table("airlines"))}
            for deliveries in expected.values():
                full_delivery = _full_delivery(deliveries)
                full_delivery[FLEET] = sizes[full_delivery["carrier"]]
        if self.sharing:
            full_deliveries = {
                name: _full_delivery(event_deliveries) for name, event_deliveries in expected.items()
            }
            return {
                name: {f"/d{delivery['distance'] % self.sharing}": delivery}
                for name, delivery in full_deliveries.items()
            }
        if self.ten:
            judged_paths = [f"/d{number}" for number in range(9 if self.tenth_port else 10)]
            return {
                name: dict.fromkeys(judged_paths, _full_delivery(event_deliveries))
                for name, event_deliveries in expected.items()
            }
        return expected

    def secrets(self) -> Mapping[str, str]:
        """Variables with the write keys of all pipes but the first."""
        return {f"KEY_{number}": f"key-{number}-of-many-pipes" for number in range(1, self.pipes)}

    def _with_fleet(self, pipe: Pipe) -> Pipe:
        """Lookup rows: airlines of the flights first, then unused ones, so that every size joins the same events."""
        file = Path(str(pipe.enrich.lookups["planes"].file)).with_name("fleet.ndjson")
        codes = [row["carrier"] for row in flights.table("airlines")]
        codes += [f"X{number}" for number in range(len(codes), self.rows)]
        file.write_bytes(
            b"".join(
                orjson.dumps({"code": code, "size": number}) + b"\n"
                for number, code in enumerate(codes[: self.rows])
            )
        )
        fleet = Lookup.model_validate(
            {"file": file, "key": {"carrier": "code"}, "fields": {FLEET: "size"}, "types": {"size": "int"}}
        )
        lookups = {**pipe.enrich.lookups, FLEET: fleet}
        return pipe.model_copy(update={"enrich": pipe.enrich.model_copy(update={"lookups": lookups})})

    def _url(self, url: str, number: int) -> str:
        base_url = url.rpartition("/")[0]
        if number == 9 and self.tenth_port:
            base_url = f"http://127.0.0.1:{self.tenth_port}"
        return f"{base_url}/d{number}"


def _renamed(pipe: Pipe, number: int) -> Pipe:
    keys = [key.model_copy(update={"env": f"KEY_{number}"}) for key in pipe.source.keys]
    source = pipe.source.model_copy(update={"keys": keys})
    return pipe.model_copy(update={"pipe": f"flights-{number}", "source": source})


def _full_delivery(deliveries: Deliveries) -> Any:
    return deliveries[DEPARTURES] if DEPARTURES in deliveries else deliveries[CANCELLATIONS]
