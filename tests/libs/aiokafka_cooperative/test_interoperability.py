"""Our members share a group with librdkafka's and Java's, whichever of them leads it."""

import pytest
from tests.support.aiokafka_cooperative.groups import MakeGroup
from tests.support.aiokafka_cooperative.members import Ours


@pytest.mark.parametrize(
    ("ours_first", "client_kind"),
    [
        pytest.param(True, "theirs", id="ours-leads-librdkafka"),
        pytest.param(False, "theirs", id="theirs-leads-librdkafka"),
        # Faster: the same with librdkafka.
        pytest.param(True, "javas", id="ours-leads-java", marks=pytest.mark.more),
        pytest.param(False, "javas", id="theirs-leads-java", marks=pytest.mark.more),
    ],
)
async def test_it_shares_a_group_with_other_clients(
    group: MakeGroup, client_kind: str, *, ours_first: bool
) -> None:
    async with group(partitions=6, topics=2) as member_group:
        first, second = (
            (member_group.ours, getattr(member_group, client_kind))
            if ours_first
            else (getattr(member_group, client_kind), member_group.ours)
        )
        members = []
        for make in (first, second, first):
            members.append(await make().start())
            await member_group.balanced()
        our_members = [member for member in members if isinstance(member, Ours)]
        assert [member.leads for member in our_members] == ([True, False] if ours_first else [False])
        for member in members:
            await member_group.more_of(member, member.assigned)
        await member_group.leave(members[0])  # another one leads
        await member_group.balanced()
        members.append(await second().start())
        await member_group.balanced()
        await member_group.leave(members[2])
        await member_group.balanced()
        for member in member_group.members:
            await member_group.more_of(member, member.assigned)
        sent_count, lost_count, repeated_count = await member_group.finish()
    assert (lost_count, repeated_count) == (0, 0), f"of {sent_count}"
    for member in members:
        assert not (member.told("lost") if isinstance(member, Ours) else member.lost)
