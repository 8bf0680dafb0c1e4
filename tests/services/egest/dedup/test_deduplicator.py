"""No delivery is sent again once its receipt was acknowledged, and none is left out, whatever rewinds and dies."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hifi.kafka.offset_tracker import OffsetTracker
from hifi_egest.dedup.deduplicator import Copy, Done, Memory, Once

DESTINATIONS = (b"a", b"b")
FLOOR = "receipts"


@dataclass
class Receipt:
    offset: int
    destination: bytes
    seq: int


@dataclass
class Member:
    """One owner of the partition, as egest does it."""

    once: Once
    done: Done
    position: int
    floor: int
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    owed: dict[int, set[bytes]] = field(default_factory=dict)
    sending: list[tuple[int, bytes, int]] = field(default_factory=list)


class Mesh(RuleBasedStateMachine):
    """A topic `enriched` with rewinds, members of egest that die and are taken over, and zombies."""

    def __init__(self) -> None:
        super().__init__()
        self.raw: list[int] = []
        self.enriched: list[tuple[int, int]] = []
        self.cursor = 0
        self.receipts: list[Receipt] = []
        self.committed: tuple[int, str] | None = None
        self.sent: Counter[tuple[int, bytes]] = Counter()
        self.allowed: Counter[tuple[int, bytes]] = Counter()
        self.zombies: list[tuple[int, bytes, int]] = []
        self.taken_over()

    def taken_over(self) -> None:
        offset, metadata = self.committed or (0, "")
        memory = Memory.read(metadata) or Memory()
        done = Done()
        start = memory.floors.get(FLOOR, 0)
        known = self.receipts[start:]
        for receipt in known:
            done.add(receipt.offset, receipt.destination)
        once = Once(memory, done, window=-1)  # so that the ranks have to do it
        for receipt in known:
            if receipt.offset < offset:
                once.remember(b"%d" % receipt.seq)
        self.member = Member(once, done, offset, len(self.receipts))

    @rule(new=st.integers(0, 4), back=st.sampled_from([0, 0, 1, 3, 20]))
    def enrich(self, new: int, back: int) -> None:
        """New events come, and perhaps enrich dies and goes on from an older commit."""
        self.raw.extend(range(len(self.raw), len(self.raw) + new))
        self.cursor = max(0, self.cursor - back)
        self.enriched += [(rank, self.raw[rank]) for rank in range(self.cursor, len(self.raw))]
        self.cursor = len(self.raw)

    @rule(count=st.integers(1, 6), snapshot=st.booleans())
    def read(self, count: int, snapshot: bool) -> None:
        member = self.member
        if snapshot:
            member.floor = len(self.receipts)
        batch = self.enriched[member.position : member.position + count]
        if not batch:
            return
        member.once.batch(member.position, {FLOOR: member.floor})
        for rank, seq in batch:
            offset = member.position
            member.position += 1
            member.offsets.start(offset)
            # The accepted time is as good as the sequence: it ascends.
            if member.once.judge(offset, b"%d" % seq, "raw", rank, seq) is Copy.COPY:
                member.offsets.finish(offset)
                continue
            owed = {name for name in DESTINATIONS if not member.done.has(offset, name)}
            member.owed[offset] = owed
            if not owed:
                member.offsets.finish(offset)
            for name in sorted(owed):
                self.sent[seq, name] += 1
                member.sending.append((offset, name, seq))

    @precondition(lambda self: self.member.sending)
    @rule(picks=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
    def receipts_acknowledged(self, picks: list[int]) -> None:
        for pick in picks:
            if self.member.sending:
                self.acknowledge(pick % len(self.member.sending))

    def acknowledge(self, at: int) -> None:
        member = self.member
        offset, name, seq = member.sending.pop(at)
        self.receipts.append(Receipt(offset, name, seq))
        member.owed[offset].discard(name)
        if not member.owed[offset]:
            member.offsets.finish(offset)

    @rule()
    def commit(self) -> None:
        offset = self.member.offsets.committable
        if offset is not None:
            self.committed = offset, self.member.once.metadata_at(offset)

    @rule()
    def egest_dies(self) -> None:
        for offset, name, seq in self.member.sending:
            self.allowed[seq, name] += 1
            self.zombies.append((offset, name, seq))
        self.taken_over()

    @precondition(lambda self: self.zombies)
    @rule()
    def zombie_writes_its_receipt(self) -> None:
        """It was sending when it was frozen; the receipt comes after the takeover read the receipts."""
        offset, name, seq = self.zombies.pop(0)
        self.receipts.append(Receipt(offset, name, seq))

    @invariant()
    def sent_again_only_without_a_receipt(self) -> None:
        for delivery, count in self.sent.items():
            assert count <= 1 + self.allowed[delivery], delivery

    def teardown(self) -> None:
        """In the end everything is read and finished, and nothing was left out."""
        self.taken_over()
        self.read(len(self.enriched), snapshot=False)
        while self.member.sending:
            self.acknowledge(0)
        delivered = {(receipt.seq, receipt.destination) for receipt in self.receipts}
        assert delivered == {(seq, name) for seq in self.raw for name in DESTINATIONS}


TestMesh = Mesh.TestCase
TestMesh.settings = settings(max_examples=150, stateful_step_count=60)
