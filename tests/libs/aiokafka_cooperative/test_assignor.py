"""The assignment of partitions: what it promises for any group, and for any story that a group lives through."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest
from aiokafka import TopicPartition
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aiokafka_cooperative.assignor import assign, balance, owners
from aiokafka_cooperative.subscription import (
    NO_GENERATION,
    MemberSubscription,
    decode_subscription,
    encode_subscription,
)

TOPICS = ("a", "b", "c")
Share = Mapping[str, Iterable[TopicPartition]]


def tps(text: str) -> frozenset[TopicPartition]:
    """`a0 b1` as partitions."""
    return frozenset(TopicPartition(word[0], int(word[1:])) for word in text.split())


def all_partitions(partitions: Mapping[str, int], topics: Iterable[str]) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic in topics for number in range(partitions.get(topic, 0))}


def holding(
    members: Mapping[str, MemberSubscription], shares: Share, generation: int
) -> dict[str, MemberSubscription]:
    """The members of the next round, if each of them holds its share by then."""
    return {
        name: MemberSubscription(member.topics, frozenset(shares[name]), generation)
        for name, member in members.items()
    }


def could_be_evener(members: Mapping[str, MemberSubscription], shares: Share) -> bool:
    """Whether partitions could flow from some member to one with at least two less, directly or over others."""
    loads = {name: len(set(share)) for name, share in shares.items()}
    for start in members:
        reached_members, grown = {start}, True
        while grown:
            topics = {tp.topic for name in reached_members for tp in shares[name]}
            newly_reached = {name for name in members if members[name].topics & topics} - reached_members
            reached_members |= newly_reached
            grown = bool(newly_reached)
        if any(loads[name] + 2 <= loads[start] for name in reached_members):
            return True
    return False


def most_that_can_stay(loads: Iterable[int], partitions: int, members: int) -> int:
    """Of evenly shared partitions that every member may have: each keeps up to the floor, some one more."""
    floor, spare = divmod(partitions, members)
    loads = list(loads)
    return sum(min(load, floor) for load in loads) + min(spare, sum(load > floor for load in loads))


names = st.sampled_from([f"m{number}" for number in range(8)])
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 7), min_size=1)
some_topics = st.just(frozenset(TOPICS)) | st.frozensets(st.sampled_from(TOPICS))
claims = st.frozensets(st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8)), max_size=8)
any_members = st.dictionaries(
    names, st.builds(MemberSubscription, some_topics, claims, st.integers(-1, 3)), max_size=8
)


class TestBytes:
    @given(st.builds(MemberSubscription, some_topics, claims, st.integers(-1, 2**31 - 1)))
    def test_what_is_written_is_read(self, member: MemberSubscription) -> None:
        assert decode_subscription(encode_subscription(member)) == member

    def test_java_before_version_2_says_its_generation_in_the_user_data(self) -> None:
        data = bytes.fromhex("0001000000010001610000000400000007000000010001610000000100000002")
        assert decode_subscription(data) == MemberSubscription(frozenset("a"), tps("a2"), 7)

    def test_java_finds_the_generation_in_the_user_data_and_in_the_field(self) -> None:
        data = encode_subscription(MemberSubscription(frozenset("a"), tps("a2"), 7))
        assert data.hex() == "000200000001000161000000040000000700000001000161000000010000000200000007"

    def test_librdkafka_2_16(self) -> None:
        # recorded: its first JoinGroup, and one of a member that holds partition 0 since generation 4
        first_text = "000300000001000a6361702e3437346638300000000000000000ffffffff0000"
        newer_hex = (
            "000300000001000a6361702e3437346638300000001c00000001000a6361702e34373466383000000001000000000000000400"
            "000001000a6361702e3437346638300000000100000000000000040000"
        )
        topic = "cap.474f80"
        assert decode_subscription(bytes.fromhex(first_text)) == MemberSubscription(frozenset({topic}))
        previous = frozenset({TopicPartition(topic, 0)})
        assert decode_subscription(bytes.fromhex(newer_hex)) == MemberSubscription(
            frozenset({topic}), previous, 4
        )

    def test_the_assignment_before_in_librdkafkas_user_data_is_no_claim(self) -> None:
        data = bytes.fromhex("000100000001000161000000130000000100016100000001000000020000000700000000")
        assert decode_subscription(data) == MemberSubscription(frozenset("a"), frozenset(), 7)

    def test_a_member_without_claims_is_one_that_holds_nothing(self) -> None:
        assert decode_subscription(bytes.fromhex("000000000001000161ffffffff")) == MemberSubscription(
            frozenset("a")
        )

    @given(st.integers(0, 35))
    def test_bytes_that_end_too_early_are_refused(self, length: int) -> None:
        with pytest.raises(ValueError, match=r"."):
            decode_subscription(
                encode_subscription(MemberSubscription(frozenset("a"), tps("a2"), 7))[:length]
            )


class TestBalance:
    @given(any_members, counts)
    def test_every_partition_that_anybody_wants_goes_to_one_who_wants_it(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        shares = balance(members, partitions)
        assert shares.keys() == members.keys()
        assert all(tp.topic in members[name].topics for name, share in shares.items() for tp in share)
        subscribed_partitions = all_partitions(
            partitions, set().union(*(member.topics for member in members.values()))
        )
        assert Counter(tp for share in shares.values() for tp in share) == Counter(subscribed_partitions)

    @given(any_members, counts)
    def test_no_load_can_be_evened_out_further(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        assert not could_be_evener(members, balance(members, partitions))

    @given(any_members, counts)
    def test_what_is_in_balance_stays_as_it_is(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        shares = balance(members, partitions)
        next_members = holding(members, shares, 5)
        assert balance(next_members, partitions) == assign(next_members, partitions) == shares

    @given(any_members, counts)
    def test_with_equal_subscriptions_as_many_as_can_stay_do(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        assume(members)
        members = {
            name: MemberSubscription(frozenset(TOPICS), subscription.owned, subscription.generation)
            for name, subscription in members.items()
        }
        subscribed_partitions = all_partitions(partitions, TOPICS)
        owners_before = {tp: name for tp, name in owners(members).items() if tp in subscribed_partitions}
        shares = balance(members, partitions)
        stayed = sum(tp in shares[name] for tp, name in owners_before.items())
        loads = Counter(owners_before.values())
        assert stayed == most_that_can_stay(
            (loads[name] for name in members), len(subscribed_partitions), len(members)
        )

    @given(any_members, counts)
    def test_the_order_of_members_does_not_matter(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        assert balance(dict(reversed(members.items())), partitions) == balance(members, partitions)

    def test_a_new_group_gets_each_topic_evenly(self) -> None:
        members = {name: MemberSubscription(frozenset("ab")) for name in ("x", "y")}
        assert balance(members, {"a": 4, "b": 4}) == {"x": tps("a0 a2 b0 b2"), "y": tps("a1 a3 b1 b3")}

    def test_more_members_than_partitions_leave_some_empty(self) -> None:
        shares = balance({name: MemberSubscription(frozenset("a")) for name in "vwxyz"}, {"a": 2})
        assert sorted(map(len, shares.values())) == [0, 0, 0, 1, 1]

    def test_a_chain_of_moves_evens_out_what_no_single_move_can(self) -> None:
        members = {
            "x": MemberSubscription(frozenset("a"), tps("a0 a1 a2 a3"), 1),
            "y": MemberSubscription(frozenset("ab"), tps("b0 b1"), 1),
            "z": MemberSubscription(frozenset("b"), frozenset(), 1),
        }
        shares = balance(members, {"a": 4, "b": 2})
        assert {name: len(share) for name, share in shares.items()} == {"x": 2, "y": 2, "z": 2}

    def test_a_newcomer_moves_rather_than_what_is_owned(self) -> None:
        members = {
            "x": MemberSubscription(frozenset("b"), tps("b2"), 1),
            "y": MemberSubscription(frozenset("ab")),
            "z": MemberSubscription(frozenset("a")),
        }
        shares = balance(members, {"a": 1, "b": 3})
        assert shares == {"x": tps("b2"), "y": tps("b0 b1"), "z": tps("a0")}

    @pytest.mark.parametrize("partitions", [{}, {"a": 0}, {"other": 3}])
    def test_topics_without_partitions_give_nothing(self, partitions: dict[str, int]) -> None:
        assert assign({"x": MemberSubscription(frozenset("a"), tps("a0"), 1)}, partitions) == {
            "x": frozenset()
        }

    def test_a_group_of_nobody(self) -> None:
        assert assign({}, {"a": 3}) == {}


class TestHandover:
    @given(any_members, counts)
    def test_nothing_is_handed_over_that_another_may_still_read(
        self, members: dict[str, MemberSubscription], partitions: dict[str, int]
    ) -> None:
        for name, share in assign(members, partitions).items():
            for tp in share:
                for other_name in members.keys() - {name}:
                    if tp in members[other_name].owned:
                        assert tp in members[name].owned
                        assert members[other_name].generation < members[name].generation

    def test_it_takes_two_rounds(self) -> None:
        old_members = {
            "x": MemberSubscription(frozenset("a"), tps("a0 a1 a2 a3"), 1),
            "y": MemberSubscription(frozenset("a")),
        }
        first_assignment = assign(old_members, {"a": 4})
        assert first_assignment == {"x": tps("a2 a3"), "y": frozenset()}
        second_assignment = assign(holding(old_members, first_assignment, 2), {"a": 4})
        assert second_assignment == {"x": tps("a2 a3"), "y": tps("a0 a1")}

    def test_a_stale_claim_takes_nothing_from_the_owner_of_today(self) -> None:
        # KAFKA-13419: z was put out, its partitions went to x and y; now it is back with what it held then.
        members = {
            "z": MemberSubscription(frozenset("a"), tps("a4 a5"), 3),
            "x": MemberSubscription(frozenset("a"), tps("a0 a1 a4"), 5),
            "y": MemberSubscription(frozenset("a"), tps("a2 a3 a5"), 5),
        }
        assert owners(members) == dict.fromkeys(tps("a0 a1 a4"), "x") | dict.fromkeys(tps("a2 a3 a5"), "y")
        shares = assign(members, {"a": 6})
        assert not shares["z"]
        assert [len(shares[name] & members[name].owned) for name in ("x", "y")] == [2, 2]

    def test_a_stale_claim_that_nobody_disputes_is_waited_for(self) -> None:
        # KAFKA-14639: x missed a SyncGroup, but reads on; what is taken from it must not start elsewhere at once.
        members = {
            "x": MemberSubscription(frozenset("a"), tps("a0 a1 a2"), 3),
            "y": MemberSubscription(frozenset("a"), frozenset(), 4),
            "z": MemberSubscription(frozenset("a"), frozenset(), 4),
        }
        shares = assign(members, {"a": 3})
        assert {name: len(share) for name, share in shares.items()} == {"x": 1, "y": 0, "z": 0}

    def test_what_two_claim_in_one_generation_both_give_back(self) -> None:
        members = {
            "x": MemberSubscription(frozenset("a"), tps("a0"), 3),
            "y": MemberSubscription(frozenset("a"), tps("a0"), 3),
        }
        assert assign(members, {"a": 1}) == {"x": frozenset(), "y": frozenset()}


@dataclass
class GroupClient:
    """A consumer as it sees itself. It reads what it holds, whatever the group thinks."""

    topics: frozenset[str]
    held: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    stale: bool = field(default=False)
    """It has come back with claims of a membership that had ended: what no client should do, but some did."""

    def claim(self) -> MemberSubscription:
        return decode_subscription(
            encode_subscription(MemberSubscription(self.topics, self.held, self.generation))
        )


class GroupStory(RuleBasedStateMachine):
    """Kafka's side of the protocol: who is a member, rounds of JoinGroup and SyncGroup, generations."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[str, int] = {}
        self.members: dict[str, GroupClient] = {}
        self.fenced: dict[str, GroupClient] = {}
        self.generation = 0
        self.born = 0

    @initialize(partitions=counts)
    def create_topics(self, partitions: dict[str, int]) -> None:
        self.partitions = partitions

    @rule(topics=some_topics)
    @precondition(lambda self: len(self.members) < 7)
    def join(self, topics: frozenset[str]) -> None:
        self._admit(GroupClient(topics))

    def _admit(self, client: GroupClient) -> None:
        self.born += 1
        self.members[f"{'zyx'[self.born % 3]}{self.born}"] = client

    def _choose(self, data: st.DataObject, clients: Mapping[str, GroupClient]) -> str:
        return data.draw(st.sampled_from(sorted(clients)))

    @rule(data=st.data())
    @precondition(lambda self: self.members)
    def leave_or_die(self, data: st.DataObject) -> None:
        del self.members[self._choose(data, self.members)]

    @rule(data=st.data())
    @precondition(lambda self: self.members)
    def be_put_out_without_noticing(self, data: st.DataObject) -> None:
        name = self._choose(data, self.members)
        self.fenced[name] = self.members.pop(name)

    @rule(data=st.data(), forgets=st.booleans())
    @precondition(lambda self: self.fenced and len(self.members) < 7)
    def come_back(self, data: st.DataObject, forgets: bool) -> None:
        client = self.fenced.pop(self._choose(data, self.fenced))
        self._admit(
            GroupClient(client.topics)
            if forgets
            else GroupClient(client.topics, client.held, client.generation, stale=True)
        )

    @rule(data=st.data(), topics=some_topics)
    @precondition(lambda self: self.members)
    def subscribe_to_others(self, data: st.DataObject, topics: frozenset[str]) -> None:
        client = self.members[self._choose(data, self.members)]
        client.topics = topics
        client.held = frozenset(tp for tp in client.held if tp.topic in topics)  # given back before it joins

    @rule(topic=st.sampled_from(TOPICS))
    @precondition(lambda self: sum(self.partitions.values()) < 20)
    def add_a_partition(self, topic: str) -> None:
        self.partitions[topic] = self.partitions.get(topic, 0) + 1

    @rule(data=st.data())
    @precondition(lambda self: self.members)
    def rebalance(self, data: st.DataObject) -> None:
        """One round, in which some joined but miss the assignment: they read on what they held before."""
        missing_members = data.draw(st.frozensets(st.sampled_from(sorted(self.members))))
        self._round(missing_members)

    def _round(self, missing_members: frozenset[str] = frozenset()) -> bool:
        self.generation += 1
        claims = {name: self.members[name].claim() for name in sorted(self.members)}
        shares = assign(claims, self.partitions)
        self._check_that_nobody_else_reads(claims, shares)
        self._check_that_no_more_moves_than_must(claims, shares)
        has_changed = False
        for name in shares.keys() - missing_members:
            client = self.members[name]
            has_changed |= client.held != shares[name]
            client.held, client.generation, client.stale = shares[name], self.generation, False
        return has_changed or bool(missing_members)

    def _check_that_nobody_else_reads(self, claims: Mapping[str, MemberSubscription], shares: Share) -> None:
        """A member with a new partition may start at once, before others have seen that they lose it."""
        for name, share in shares.items():
            for other_name in self.members.keys() - {name}:
                shared_partitions = set(share) & (self.members[other_name].held | set(shares[other_name]))
                if self.members[other_name].stale:
                    # It reads what became another's long ago. The other member keeps it, and this member must stop.
                    assert all(
                        claims[name].generation > claims[other_name].generation for _ in shared_partitions
                    )
                    assert shared_partitions <= claims[name].owned
                    assert shared_partitions.isdisjoint(shares[other_name])
                else:
                    assert not shared_partitions, f"{name} gets what {other_name} may still read"

    def _check_that_no_more_moves_than_must(
        self, claims: Mapping[str, MemberSubscription], shares: Share
    ) -> None:
        subscribed_partitions = all_partitions(
            self.partitions, set().union(*(claim.topics for claim in claims.values()))
        )
        claimed_partitions = [
            (name, tp)
            for tp in subscribed_partitions
            for newest in [max((c.generation for c in claims.values() if tp in c.owned), default=None)]
            for name, claim in claims.items()
            if tp in claim.owned and claim.generation == newest and tp.topic in claim.topics
        ]
        if len({tp for _, tp in claimed_partitions}) < len(claimed_partitions):
            return  # two of one generation: both give it back
        kept_count = sum(tp in shares[name] for name, tp in claimed_partitions)
        if len({claim.topics for claim in claims.values()}) == 1:
            loads = Counter(name for name, _ in claimed_partitions)
            max_kept = most_that_can_stay(
                (loads[name] for name in claims), len(subscribed_partitions), len(claims)
            )
            assert kept_count == max_kept
        else:
            loads_held = {
                name: [tp for holder, tp in claimed_partitions if holder == name] for name in claims
            }
            if len(claimed_partitions) == len(subscribed_partitions) and not could_be_evener(
                claims, loads_held
            ):
                assert kept_count == len(claimed_partitions)

    @invariant()
    def members_read_nothing_twice(self) -> None:
        reader_counts = Counter(
            tp for client in self.members.values() if not client.stale for tp in client.held
        )
        assert all(times == 1 for times in reader_counts.values())

    def teardown(self) -> None:
        """Once all members hear each other again, all partitions are read, evenly."""
        round_count = 0
        while self.members and self._round():
            round_count += 1
            assert round_count <= 4
        topics = set().union(*(client.topics for client in self.members.values()))
        subscribed_partitions = all_partitions(self.partitions, topics)
        assert Counter(tp for client in self.members.values() for tp in client.held) == Counter(
            subscribed_partitions
        )
        shares = {name: client.held for name, client in self.members.items()}
        assert not could_be_evener({name: client.claim() for name, client in self.members.items()}, shares)


GroupStory.TestCase.settings = settings(max_examples=300, stateful_step_count=30)
TestGroupStory = GroupStory.TestCase
