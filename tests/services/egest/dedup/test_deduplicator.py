"""After rewinds and crashes no delivery with an acknowledged receipt is sent again, and none is left out."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hifi.kafka.offset_tracker import OffsetTracker
from hifi_egest.dedup.commit_metadata import CommitMetadata
from hifi_egest.dedup.deduplicator import CopyCheck, Deduplicator
from hifi_egest.dedup.outcome_index import OutcomeIndex

DESTINATIONS = (b"a", b"b")
FLOOR = "receipts"


@dataclass
class Receipt:
    offset: int
    destination: bytes
    seq: int


@dataclass
class Owner:
    """One owner of the partition, as egest does it."""

    deduplicator: Deduplicator
    index: OutcomeIndex
    position: int
    floor: int
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    open_destinations: dict[int, set[bytes]] = field(default_factory=dict)
    in_flight: list[tuple[int, bytes, int]] = field(default_factory=list)


class Mesh(RuleBasedStateMachine):
    """A topic `enriched` with rewinds, owners of egest that die and are taken over, and zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[int] = []
        self.enriched: list[tuple[int, int]] = []
        self.cursor = 0
        self.receipts: list[Receipt] = []
        self.committed: tuple[int, str] | None = None
        self.send_counts: Counter[tuple[int, bytes]] = Counter()
        self.allowed_counts: Counter[tuple[int, bytes]] = Counter()
        self.zombies: list[tuple[int, bytes, int]] = []
        self.taken_over()

    def taken_over(self) -> None:
        offset, text = self.committed or (0, "")
        metadata = CommitMetadata.parse(text) or CommitMetadata()
        index = OutcomeIndex()
        start = metadata.floors.get(FLOOR, 0)
        receipts = self.receipts[start:]
        for receipt in receipts:
            index.add(receipt.offset, receipt.destination)
        deduplicator = Deduplicator(metadata, index, window=-1)  # so that the offsets have to do it
        for receipt in receipts:
            if receipt.offset < offset:
                deduplicator.remember(b"%d" % receipt.seq)
        self.owner = Owner(deduplicator, index, offset, len(self.receipts))

    @rule(new_count=st.integers(0, 4), back_count=st.sampled_from([0, 0, 1, 3, 20]))
    def enrich(self, new_count: int, back_count: int) -> None:
        """New events come, and perhaps enrich dies and goes on from an older commit."""
        self.raw.extend(range(len(self.raw), len(self.raw) + new_count))
        self.cursor = max(0, self.cursor - back_count)
        self.enriched += [
            (log_offset, self.raw[log_offset]) for log_offset in range(self.cursor, len(self.raw))
        ]
        self.cursor = len(self.raw)

    @rule(count=st.integers(1, 6), snapshot=st.booleans())
    def read(self, count: int, snapshot: bool) -> None:
        owner = self.owner
        if snapshot:
            owner.floor = len(self.receipts)
        batch = self.enriched[owner.position : owner.position + count]
        if not batch:
            return
        owner.deduplicator.begin_batch(owner.position, {FLOOR: owner.floor})
        for log_offset, seq in batch:
            offset = owner.position
            owner.position += 1
            owner.offsets.start(offset)
            # The accepted time is as good as the sequence: it ascends.
            if owner.deduplicator.check(offset, b"%d" % seq, "raw", log_offset, seq) is CopyCheck.COPY:
                owner.offsets.finish(offset)
                continue
            open_destinations = {name for name in DESTINATIONS if not owner.index.has(offset, name)}
            owner.open_destinations[offset] = open_destinations
            if not open_destinations:
                owner.offsets.finish(offset)
            for name in sorted(open_destinations):
                self.send_counts[seq, name] += 1
                owner.in_flight.append((offset, name, seq))

    @precondition(lambda self: self.owner.in_flight)
    @rule(indexes=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
    def receipts_acknowledged(self, indexes: list[int]) -> None:
        for index in indexes:
            if self.owner.in_flight:
                self.acknowledge(index % len(self.owner.in_flight))

    def acknowledge(self, index: int) -> None:
        owner = self.owner
        offset, name, seq = owner.in_flight.pop(index)
        self.receipts.append(Receipt(offset, name, seq))
        owner.open_destinations[offset].discard(name)
        if not owner.open_destinations[offset]:
            owner.offsets.finish(offset)

    @rule()
    def commit(self) -> None:
        offset = self.owner.offsets.committable
        if offset is not None:
            self.committed = offset, self.owner.deduplicator.metadata_at(offset)

    @rule()
    def egest_dies(self) -> None:
        for offset, name, seq in self.owner.in_flight:
            self.allowed_counts[seq, name] += 1
            self.zombies.append((offset, name, seq))
        self.taken_over()

    @precondition(lambda self: self.zombies)
    @rule()
    def zombie_writes_its_receipt(self) -> None:
        """A frozen owner writes the receipt of a delivery after the takeover read the receipts."""
        offset, name, seq = self.zombies.pop(0)
        self.receipts.append(Receipt(offset, name, seq))

    @invariant()
    def sent_again_only_without_a_receipt(self) -> None:
        for delivery, count in self.send_counts.items():
            assert count <= 1 + self.allowed_counts[delivery], delivery

    def teardown(self) -> None:
        """In the end everything is read and finished, and nothing was left out."""
        self.taken_over()
        self.read(len(self.enriched), snapshot=False)
        while self.owner.in_flight:
            self.acknowledge(0)
        deliveries = {(receipt.seq, receipt.destination) for receipt in self.receipts}
        assert deliveries == {(seq, name) for seq in self.raw for name in DESTINATIONS}


TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=150, stateful_step_count=60)


def checked(
    deduplicator: Deduplicator, offset: int, log_offset: int, accepted_us: int = 0, key: bytes | None = None
) -> CopyCheck:
    return deduplicator.check(offset, key or b"%d" % log_offset, "raw", log_offset, accepted_us)


def test_a_step_that_is_repeated_gets_the_same_verdict() -> None:
    deduplicator = Deduplicator(CommitMetadata(), OutcomeIndex())
    assert checked(deduplicator, 7, 3) is CopyCheck.FIRST
    assert checked(deduplicator, 7, 3) is CopyCheck.FIRST
    assert checked(deduplicator, 8, 3) is CopyCheck.COPY


def test_a_copy_with_a_rank_of_its_own_is_known_by_its_key() -> None:
    deduplicator = Deduplicator(CommitMetadata(), OutcomeIndex())
    assert checked(deduplicator, 0, 10, key=b"a") is CopyCheck.FIRST
    assert checked(deduplicator, 1, 11, key=b"a") is CopyCheck.COPY
    assert checked(deduplicator, 2, 12, key=b"b") is CopyCheck.FIRST


def test_a_topic_that_was_made_anew_loses_nothing() -> None:
    """Its offsets begin at 0 again, but its events are accepted later than all before."""
    deduplicator = Deduplicator(CommitMetadata({"raw": 1000}, 50, {}), OutcomeIndex())
    assert checked(deduplicator, 0, 900, accepted_us=50) is CopyCheck.COPY
    assert checked(deduplicator, 1, 0, accepted_us=51) is CopyCheck.RESET
    assert checked(deduplicator, 2, 1, accepted_us=52) is CopyCheck.FIRST
