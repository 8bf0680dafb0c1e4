"""An owner whose address cannot be used is told again later, and keeps no other owner waiting."""

from typing import Any

import pytest

from hifi.pipe.owner import Owner
from hifi_observe.alarms.alarm import Alarm, Alarms, OwnerChannel
from hifi_observe.alarms.owner_notifier import OwnerNotifier
from hifi_observe.settings import ObserveSettings

_ODD_ADDRESSES = ["a@[", '(@)"', ".:@a", "a@b..c", "a@b@c", "a b@c", "a.@c", "@c", "a@", "a\\@c"]


@pytest.mark.parametrize(
    "email", ["ann@example.com", "a.b+c@x-y.example", "o'neil_1@localhost", "jörg@müller.example"]
)
def test_addresses_of_a_mailbox_are_accepted(email: str) -> None:
    assert Owner(email=email).email == email


@pytest.mark.parametrize(
    "fields",
    [
        *({"email": email} for email in _ODD_ADDRESSES[:3]),
        {"webhook": "https://hooks..example.com/x"},
        {"webhook": "https://[::"},
    ],
)
async def test_no_address_ends_the_notices(fields: dict[str, Any]) -> None:
    async def record(alarm: Alarm, channels: list[OwnerChannel]) -> None:
        raise AssertionError((alarm, channels))

    owner = Owner.model_construct(**{"email": None, "webhook": None} | fields)
    settings = ObserveSettings(
        kafka="127.0.0.1:1", stream="s", observe_smtp_host="127.0.0.1", observe_smtp_from="hifi@example.com",
        observe_smtp_port=1,
    )  # fmt: skip
    notifier, alarms = OwnerNotifier(settings, lambda _: owner, record), Alarms()
    alarms.step({("credentials", "flights", "crm"): "10 outcomes in a row were 401"}, 0)
    await notifier.step([(alarm, []) for alarm in alarms.active])
