"""A simulated mesh: lists instead of topics, random faults, and a record of what they lost."""

import hashlib
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import orjson

from hifi.record.cloudevents.timestamps import format_us
from hifi.record.fields import fields, packed
from hifi.record.headers import (
    ACCEPTED,
    ANSWERED,
    DESTINATION,
    IN,
    MINUTE,
    OUTCOME,
    PASS,
    PIPE,
    REASON,
    REVISION,
    REVISION_OFFSET,
    SENT,
    SEQ,
    SERVICE,
    TIME,
    TO,
    WATCH,
)
from hifi.record.identity import seq_text

TIERS = ("5s", "30s")
DESTINATIONS = ("a", "b")
ENDING = 0.05
"""Chance that normalize refuses an event, that it knows it as sent before, and that enrich refuses it."""
READS = {"raw": "normalize", "normalized": "enrich", "enriched": "egest", "retry-out": "egest"} | {
    f"retry-in.{tier}": "retrier" for tier in TIERS
}
TOPICS = (*READS, "dead-letter", "receipts", "accepted")
Id = tuple[str, int]
Headers = dict[str, bytes]


@dataclass(slots=True)
class Row:
    offset: int
    timestamp: int
    headers: list[tuple[str, bytes]]
    value: bytes | None = None


def identity(seq: bytes, minute: int, pipe: bytes = b"flights") -> Headers:
    """The fields that every record of an event has, accepted at the beginning of its minute."""
    return {
        PIPE: pipe,
        REVISION: b"1",
        REVISION_OFFSET: b"1",
        ACCEPTED: b"%d" % (minute * 60_000_000),
        MINUTE: b"%d" % minute,
        SEQ: seq,
        IN: b"%d" % (minute * 60_000_000),
    }


def bucket(seq: bytes) -> Headers:
    """Headers that enrich adds for the watched fields of an event."""
    return {WATCH: b"w:%d,x" % (int(seq.partition(b":")[2]) % 3)}


def size_of(event: Id) -> int:
    """Size of an event's data, bytes."""
    return event[1] % 50


def id_of(headers: Headers) -> Id:
    epoch, _, sequence = headers[SEQ].partition(b":")
    return epoch.decode(), int(sequence)


@dataclass
class Mesh:
    """One partition of a mesh. `faults` are the chances of a record's misfortune at each step."""

    seed: int
    drop: float = 0.02
    copy: float = 0.02
    crash: float = 0.1
    event_times: bool = False
    """Whether events have event times, in any order: some old, some in the future."""
    now_ms: int = 1_700_000_000_000
    logs: dict[str, list[Row]] = field(default_factory=lambda: {topic: [] for topic in TOPICS})
    position: dict[str, int] = field(default_factory=lambda: dict.fromkeys(READS, 0))
    committed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(READS, 0))
    dropped: defaultdict[tuple[str, str], set[Id]] = field(default_factory=lambda: defaultdict(set))
    """(Hop, destination) to who was ever dropped there."""
    acknowledged: set[tuple[str, int, Id]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._event_time = random.Random(self.seed + 2)
        self._epoch = ""
        self._sequence = 0
        self._untold: list[tuple[str, int, int]] = []
        self.restart_ingest()

    def append(self, topic: str, headers: Headers, value: bytes | None = None) -> None:
        log = self.logs[topic]
        log.append(Row(len(log), self.now_ms, packed(headers), value))

    def restart_ingest(self, *, drained: bool = False) -> None:
        if self._epoch:
            self.tell(closed=drained)
        self._epoch = f"{self.random.getrandbits(64):016x}"
        self._sequence = 0

    def accept(self, count: int) -> None:
        for _ in range(count):
            pipe = self.random.choice(("flights", "orders"))
            accepted_ms = self.now_ms
            minute = (accepted_ms - self.random.choice((0, 0, 0, 90_000))) // 60_000
            known_as = (self._epoch, self._sequence)
            headers = identity(seq_text(int(self._epoch, 16), self._sequence), minute, pipe.encode()) | {
                ACCEPTED: b"%d" % (accepted_ms * 1000),
                IN: b"%d" % (accepted_ms * 1000 - 500),
            }
            if self.event_times:
                headers[TIME] = self._time_text(accepted_ms)
            self._sequence += 1
            is_lost = self.random.random() < self.drop
            if is_lost:
                self.dropped["ingest", ""].add(known_as)
            else:
                for _ in range(2 if self.random.random() < self.copy else 1):
                    self.append("raw", headers, bytes(size_of(known_as)))
            if is_lost or self.random.random() > 0.02:
                self._untold.append((pipe, minute, known_as[1]))
                self.acknowledged.add((pipe, minute, known_as))

    def _time_text(self, accepted_ms: int) -> bytes:
        late_ms = self._event_time.choice((0, 0, 0, 40, 900, 4_000, 60_000, 86_400_000, -3_600_000))
        return format_us((accepted_ms - late_ms) * 1000)

    def tell(self, *, closed: bool = False) -> None:
        pipes: dict[str, dict[str, list[list[int]]]] = {}
        for pipe, minute, sequence in self._untold:
            pipes.setdefault(pipe, {}).setdefault(str(minute), []).append([sequence, sequence])
        self._untold.clear()
        self.append("accepted", {}, orjson.dumps({"epoch": self._epoch, "pipes": pipes, "closed": closed}))

    def work(self, topic: str, limit: int) -> None:
        """The reader of a topic takes a batch; then it commits, or dies before that and begins again."""
        first = self.position[topic]
        batch = self.logs[topic][first : first + limit]
        outputs: list[tuple[str, Headers]] = []
        for row in batch:
            outputs += self._outputs(topic, fields(row.headers))
        if self.random.random() < 0.5 and READS[topic] == "egest":
            self.random.shuffle(outputs)
        dying = self.random.random() < self.crash
        for target, headers in outputs[: self.random.randint(0, len(outputs))] if dying else outputs:
            self.append(target, headers | {IN: b"%d" % (self.now_ms * 1000)})
        if dying:
            self.position[topic] = self.committed[topic]
            return
        self.position[topic] = first + len(batch)
        if self.random.random() < 0.8:
            self.committed[topic] = self.position[topic]

    def _outputs(self, topic: str, headers: Headers) -> list[tuple[str, Headers]]:
        service = READS[topic]
        copies = 2 if self.random.random() < self.copy else 1
        if service in ("normalize", "enrich"):
            if self._drops(service, "", headers):
                return []
            if self._fate(headers, service) < ENDING:
                return [("dead-letter", headers | {SERVICE: service.encode(), REASON: b"schema"})]
            if service == "normalize":
                is_repeated = self._fate(headers, "sent-before") < ENDING
                duplicate_receipt = ("receipts", headers | {OUTCOME: b"duplicate"})
                return [duplicate_receipt if is_repeated else ("normalized", headers)] * copies
            destinations = (b"", b"a", b"a,b")[int(self._fate(headers, "to") * 3)]
            return [
                ("enriched", headers | {TO: destinations} | (bucket(headers[SEQ]) if destinations else {}))
            ] * copies
        if service == "retrier":
            name = headers[DESTINATION].decode()
            retried_headers = headers | {PASS: b"%d" % (int(headers.get(PASS, b"0")) + 1)}
            return [] if self._drops(service, name, headers) else [("retry-out", retried_headers)] * copies
        names = [headers[DESTINATION].decode()] if topic == "retry-out" else headers[TO].decode().split(",")
        receipts = []
        for name in names:
            if not self._drops("retry" if topic == "retry-out" else "egest", name, headers):
                receipts += self._deliver(name, headers) * copies
        return receipts

    def _deliver(self, name: str, headers: Headers) -> list[tuple[str, Headers]]:
        delivery_headers = headers | {DESTINATION: name.encode()}
        if not name:
            return [("receipts", delivery_headers | {OUTCOME: b"filtered"})]
        trip = int(headers.get(PASS, b"0"))
        chance = self._fate(headers, f"{name}{trip}")
        if chance < 0.75:
            times = {
                SENT: b"%d" % (self.now_ms * 1000),
                ANSWERED: b"%d" % (self.now_ms * 1000 + 700),
            }
            return [("receipts", delivery_headers | times | {OUTCOME: b"delivered"})]
        if chance < 0.8:
            return [
                ("dead-letter", delivery_headers | {SERVICE: b"egest", REASON: b"status-400"}),
                ("receipts", delivery_headers | {OUTCOME: b"dead-letter"}),
            ]
        retry_headers = delivery_headers | {PASS: b"%d" % trip}
        return [
            (f"retry-in.{self.random.choice(TIERS)}", retry_headers),
            ("receipts", delivery_headers | {OUTCOME: b"retry"}),
        ]

    def _drops(self, hop: str, name: str, headers: Headers) -> bool:
        if self.random.random() >= self.drop:
            return False
        self.dropped[hop, name].add(id_of(headers))
        return True

    def _fate(self, headers: Headers, purpose: str) -> float:
        """A number from 0 to 1 that is the same at every try: a copy ends like its original."""
        text = b"%d %s %s" % (self.seed, headers[SEQ], purpose.encode())
        return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big") / 2**48

    def ends_before_egest(self, sequence: int) -> bool:
        """Whether normalize or enrich will refuse this event of the present epoch, or know it as sent before."""
        headers = {SEQ: seq_text(int(self._epoch, 16), sequence)}
        return any(
            self._fate(headers, purpose) < ENDING for purpose in ("normalize", "sent-before", "enrich")
        )

    def drain(self) -> None:
        """Every service works until nothing waits, and commits."""
        self.crash = 0.0
        while any(self.position[topic] < len(self.logs[topic]) for topic in READS):
            for topic in READS:
                self.work(topic, 1000)
        for topic in READS:
            self.committed[topic] = self.position[topic]

    # The truth, by plain sets over the whole logs

    def index(self) -> None:
        """Read the whole logs once; call when nothing changes any more."""
        self.ids_by_place: defaultdict[tuple[object, ...], list[Id]] = defaultdict(list)
        header_names = (DESTINATION, OUTCOME, SERVICE, PASS)
        for topic, log in self.logs.items():
            for row in log:
                headers = fields(row.headers)
                if not headers:
                    continue
                key = (headers[PIPE].decode(), int(headers[MINUTE]), topic)
                header_texts = [headers.get(name, b"").decode() for name in header_names]
                self.ids_by_place[key].append(id_of(headers))
                self.ids_by_place[*key, *header_texts[:2]].append(id_of(headers))
                self.ids_by_place[*key, "service", header_texts[0], header_texts[2]].append(id_of(headers))
                self.ids_by_place[*key, "trip", header_texts[0], int(header_texts[3] or 0)].append(
                    id_of(headers)
                )
                for name in headers.get(TO, b"").decode().split(",") if topic == "enriched" else ():
                    self.ids_by_place[*key, "to", name].append(id_of(headers))

    def ids(self, pipe: str, minute: int, topic: str, *details: object) -> set[Id]:
        return set(self.ids_by_place.get((pipe, minute, topic, *details), ()))

    def buckets(self, pipe: str, minute: int) -> Counter[str]:
        """The events of `enriched` that a destination wants, by the buckets of both watched fields."""
        filtered = self.ids(pipe, minute, "enriched", "to", "")
        sequences = [sequence for _, sequence in self.ids(pipe, minute, "enriched") - filtered]
        return Counter(str(sequence % 3) for sequence in sequences) + Counter({"x": len(sequences)})

    def lost(self, pipe: str, minute: int) -> dict[tuple[str, str], set[Id]]:
        """Events without a successor after everything was read and committed, by hop and destination."""
        raw, normalized_ids = self.ids(pipe, minute, "raw"), self.ids(pipe, minute, "normalized")
        enriched = self.ids(pipe, minute, "enriched")
        accepted = {known_as for p, m, known_as in self.acknowledged if (p, m) == (pipe, minute)}
        lost_ids = {
            ("ingest", ""): accepted - raw,
            ("normalize", ""): raw
            - normalized_ids
            - self.ids(pipe, minute, "dead-letter", "service", "", "normalize")
            - self.ids(pipe, minute, "receipts", "", "duplicate"),
            ("enrich", ""): normalized_ids
            - enriched
            - self.ids(pipe, minute, "dead-letter", "service", "", "enrich"),
        }
        for name in ("", *DESTINATIONS):
            final = self.ids(pipe, minute, "receipts", name, "delivered")
            final |= self.ids(pipe, minute, "receipts", name, "filtered")
            final |= self.ids(pipe, minute, "dead-letter", "service", name, "egest") if name else set()
            stored_ids = [
                self._trip(pipe, minute, [f"retry-in.{tier}" for tier in TIERS], name, trip - 1)
                for trip in range(40)
            ]
            sent_ids = [self._trip(pipe, minute, ["retry-out"], name, trip) for trip in range(40)]
            lost_ids["egest", name] = (
                self.ids(pipe, minute, "enriched", "to", name) - final - set().union(*stored_ids)
            )
            lost_ids["retrier", name], lost_ids["retry", name] = set(), set()
            for trip in range(1, 40):
                later_ids = set().union(*stored_ids[trip + 1 :], *sent_ids[trip + 1 :])
                lost_ids["retrier", name] |= stored_ids[trip] - sent_ids[trip] - final - later_ids
                lost_ids["retry", name] |= sent_ids[trip] - final - later_ids
        return {stage: ids for stage, ids in lost_ids.items() if ids}

    def _trip(self, pipe: str, minute: int, topics: list[str], name: str, trip: int) -> set[Id]:
        return set().union(*(self.ids(pipe, minute, topic, "trip", name, trip) for topic in topics))

    def surplus(self, pipe: str, minute: int, topic: str) -> int:
        """Records of a topic beyond the first of each event."""
        sequences = self.ids_by_place.get((pipe, minute, topic), [])
        return len(sequences) - len(set(sequences))
