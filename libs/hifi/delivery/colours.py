"""Which colour of a stream gets which share of the requests, and what each colour is meant to do. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

import orjson

from hifi.record.record import Record
from hifi.record.typed_body import LARGEST, RecordBodyReader
from hifi.runtime.errors import Misconfigured

WHOLE_SHARE: Final = 10_000
"""All requests; shares are counted in 1/10,000."""
NAMES: Final = ("blue", "green")
_KEY: Final = b"colours"
_VERSION: Final = 1


class ColourState(StrEnum):
    """The wanted state of a colour."""

    ACTIVE = "active"
    """It gets a share of the requests."""
    IDLE = "idle"
    """It runs and gets none, unless the other colour refuses connections."""
    DRAINING = "draining"
    """As idle, and somebody waits until all its events have an outcome."""
    ASLEEP = "asleep"
    """No process of it runs."""


@dataclass(frozen=True, slots=True)
class ColourSetup:
    """Versions and settings of a colour, where they differ from the options with which both colours were started.

    Attributes:
        partitions: of each event topic; 0: as started.
        kafka_version: of its broker; empty: as started.
        release: folder of the release of hifi that its processes run; empty: as started.
        settings: variables of its services, by name.
    """

    partitions: int = 0
    kafka_version: str = ""
    release: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """For people: `8 partitions, HIFI_ENRICH_DRIVER_MEMORY=2g`; empty when nothing differs."""
        differences = [f"{self.partitions} partitions"] if self.partitions else []
        differences += [f"Kafka {self.kafka_version}"] if self.kafka_version else []
        differences += [f"release {self.release}"] if self.release else []
        return ", ".join(
            [*differences, *(f"{name}={value}" for name, value in sorted(self.settings.items()))]
        )


_SETUP: Final = RecordBodyReader(ColourSetup, "the setup of a colour")


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour.

    Attributes:
        share: of the requests, in 1/10,000.
        state: what it is meant to do.
        ingest: URLs of its ingest.
        observe: URL of its observe.
        kafka: bootstrap servers of its Kafka; empty until it has started for the first time.
        setup: what it runs on.
        woken_ms: when it was woken last, milliseconds since 1970 UTC; 0: never, or by a release before.
        left_open: while it sleeps, the watermarks that its observe stated last (as `GET /api/v1/watermarks` has them)
            where deliveries are parked.
        awaits_keys: whether it woke, and has not got the issued write keys of the other colour since.
    """

    share: int
    state: ColourState
    ingest: tuple[str, ...]
    observe: str
    kafka: str = ""
    setup: ColourSetup = field(default_factory=ColourSetup)
    woken_ms: int = 0
    left_open: tuple[Mapping[str, Any], ...] = ()
    awaits_keys: bool = False

    def in_state(self, state: ColourState, at_ms: int) -> "Colour":
        """This colour in another state, as decided at a time, milliseconds since 1970 UTC."""
        is_waking = self.state is ColourState.ASLEEP and state is not ColourState.ASLEEP
        return replace(
            self,
            state=state,
            woken_ms=at_ms if is_waking else self.woken_ms,
            left_open=self.left_open if state is ColourState.ASLEEP else (),
            awaits_keys=self.awaits_keys or is_waking,
        )


@dataclass(frozen=True, slots=True)
class FrontAddress:
    """One front: where it accepts events, and where its figures are read, the path of HAProxy's runtime socket."""

    url: str
    stats: str


@dataclass(frozen=True, slots=True)
class Colours:
    """Both colours and what is before them.

    Attributes:
        colours: name to colour; the shares add up to 10,000.
        fronts: one or two, which divide the requests in the same way.
        at_ms: when it was decided, milliseconds since 1970 UTC.
        by: who decided it, for people.
    """

    colours: Mapping[str, Colour]
    fronts: tuple[FrontAddress, ...]
    at_ms: int
    by: str

    def with_shares(self, shares: Mapping[str, int], at_ms: int, author: str) -> "Colours":
        """These colours with other shares; a colour with a share is active, one that loses its share is idle.

        Raises:
            Misconfigured: the shares do not add up to 10,000, or a colour that is asleep would get requests.
        """
        if sum(shares.values()) != WHOLE_SHARE or any(share < 0 for share in shares.values()):
            raise Misconfigured(f"the shares {dict(shares)} do not add up to {WHOLE_SHARE:,}")
        colours = {}
        for name, colour in self.colours.items():
            share = shares[name]
            if share and colour.state is ColourState.ASLEEP:
                raise Misconfigured(f"{name} is asleep: wake it first with `hifi colour wake {name}`")
            state = ColourState.ACTIVE if share else colour.state
            state = ColourState.IDLE if not share and state is ColourState.ACTIVE else state
            colours[name] = replace(colour, share=share, state=state)
        return replace(self, colours=colours, at_ms=at_ms, by=author)

    def with_state(self, name: str, state: ColourState, at_ms: int, author: str) -> "Colours":
        """These colours with another state of a colour that gets no requests.

        Raises:
            Misconfigured: the colour gets requests.
        """
        colour = self.colours[name]
        if colour.share:
            raise Misconfigured(
                f"{name} gets {colour.share / 100:g} % of the requests: shift them to the other colour first, with "
                f"`hifi colour shift {other(name)}`"
            )
        return replace(
            self, colours={**self.colours, name: colour.in_state(state, at_ms)}, at_ms=at_ms, by=author
        )

    def with_sleep(
        self, name: str, left_open: Sequence[Mapping[str, Any]], at_ms: int, author: str
    ) -> "Colours":
        """These colours with one that falls asleep, and the watermarks that hold the time of both while it sleeps.

        Raises:
            Misconfigured: the colour gets requests, or the other one has not got its issued write keys yet.
        """
        if self.colours[other(name)].awaits_keys:
            raise Misconfigured(
                f"{other(name)} has not got the issued write keys of {name} yet: it gets them once both run; try again "
                f"then, and see what both wait for with `hifi colour wake {other(name)}`; or let the keys count that "
                f"{other(name)} has, with --force"
            )
        asleep = self.with_state(name, ColourState.ASLEEP, at_ms, author)
        sleeping_colour = replace(asleep.colours[name], left_open=tuple(left_open))
        return replace(asleep, colours={**asleep.colours, name: sleeping_colour})

    def with_setup(self, name: str, setup: ColourSetup, at_ms: int, author: str) -> "Colours":
        """These colours with a colour that wakes on another setup.

        Raises:
            Misconfigured: the colour is not asleep.
        """
        colour = self.colours[name]
        if colour.state is not ColourState.ASLEEP:
            raise Misconfigured(
                f"{name} is {colour.state.value}: a colour gets another setup only when it wakes; put it to sleep "
                f"first, with `hifi colour sleep {name}`"
            )
        woken_colour = replace(colour.in_state(ColourState.IDLE, at_ms), setup=setup)
        return replace(self, colours={**self.colours, name: woken_colour}, at_ms=at_ms, by=author)

    def with_keys(self, name: str, woken_ms: int) -> "Colours":
        """These colours with one that has got the issued write keys of the other one; nobody decided anything.

        Args:
            name: of the colour.
            woken_ms: when it was woken before it got them: one that was woken again since still awaits keys.
        """
        colour = self.colours[name]
        if colour.woken_ms != woken_ms:
            return self
        return replace(self, colours={**self.colours, name: replace(colour, awaits_keys=False)})

    @property
    def shares(self) -> dict[str, int]:
        """Name to share in 1/10,000."""
        return {name: colour.share for name, colour in self.colours.items()}

    @property
    def source_reader(self) -> str:
        """The colour that reads sources from which hifi fetches events: with equal shares the first one."""
        return max(NAMES, key=lambda name: self.colours[name].share)

    def record(self) -> Record:
        """The record for the topic `colours`."""
        return Record(_KEY, orjson.dumps(self.json()), [])

    def json(self) -> dict[str, Any]:
        """The value of the record."""
        colours = {
            name: {
                "share": colour.share,
                "state": colour.state.value,
                "ingest": list(colour.ingest),
                "observe": colour.observe,
                "kafka": colour.kafka,
                "setup": asdict(colour.setup) | {"settings": dict(colour.setup.settings)},
                "woken": colour.woken_ms,
                "left_open": list(colour.left_open),
                "awaits_keys": colour.awaits_keys,
            }
            for name, colour in self.colours.items()
        }
        fronts = [asdict(front) for front in self.fronts]
        return {"version": _VERSION, "colours": colours, "fronts": fronts, "at": self.at_ms, "by": self.by}


def decode(value: bytes | None) -> Colours:
    """The colours from the value of a record.

    Raises:
        ValueError: it is not a record of colours, or one of a later version.
    """
    try:
        body = orjson.loads(value or b"")
        if body["version"] != _VERSION:
            raise ValueError(f"version {body['version']}, known is {_VERSION}")
        colours = {
            str(name): Colour(
                _number(colour_json["share"]),
                ColourState(colour_json["state"]),
                tuple(map(str, colour_json["ingest"])),
                str(colour_json["observe"]),
                str(colour_json["kafka"]),
                _SETUP.of_json(asdict(ColourSetup(**colour_json["setup"]))),
                _number(colour_json.get("woken", 0)),
                tuple(map(dict, colour_json.get("left_open", ()))),
                bool(colour_json.get("awaits_keys", False)),
            )
            for name, colour_json in body["colours"].items()
        }
        if set(colours) != set(NAMES):
            raise ValueError(f"the colours are {', '.join(sorted(colours))}, not {' and '.join(NAMES)}")
        if sum(colour.share for colour in colours.values()) != WHOLE_SHARE:
            raise ValueError(f"the shares do not add up to {WHOLE_SHARE:,}")
        fronts = tuple(
            FrontAddress(str(front_json["url"]), str(front_json["stats"])) for front_json in body["fronts"]
        )
        return Colours(colours, fronts, _number(body["at"]), str(body["by"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"not a record of colours: {error}") from None


def _number(value: Any) -> int:
    number = int(value)
    if not 0 <= number < LARGEST:
        raise ValueError(f"{number} is no share and no time")
    return number


def other(name: str) -> str:
    """The other colour of the two."""
    return NAMES[1 - NAMES.index(name)]
