"""The owner of a pipe gets one notice of each problem that only they can repair: real Kafka, SMTP and webhook."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.observe.mail_server import Mailbox, mail_server
from tests.support.observe.owner_webhook import hook, secret_file
from tests.support.observe.stream_double import Stream, new_stream, pipe

from hifi.pipe.model import Pipe
from hifi.pipe.owner import Owner
from hifi.record.headers import DESTINATION, DETAIL, OUTCOME, POINTER, REASON, SERVICE, SOURCE, STATUS
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured
from hifi_observe.alarms.alarm import Alarm, Alarms, OwnerChannel
from hifi_observe.alarms.alarm_notifier import AlarmNotifier
from hifi_observe.alarms.owner_notifier import OwnerNotifier
from hifi_observe.alarms.webhook_signature import webhook_signer
from hifi_observe.settings import ObserveSettings


async def until(condition: Callable[[], bool], within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.05)


def owned(name: str, owner: dict[str, str]) -> Pipe:
    body = pipe(name).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Pipe.model_validate(body | {"owner": owner})


async def refuse(stream: Stream, name: str, pointers: list[str]) -> None:
    """Events that normalize refuses, and a destination that answers 401."""
    minute = now_us() // 60_000_000
    refused_events = [stream.fields(0, minute, name) for _ in pointers]
    await stream.write("raw", 0, refused_events)
    reason_fields = {SERVICE: b"normalize", REASON: b"schema", DETAIL: b"is missing"}
    letters = [
        fields | reason_fields | {POINTER: pointer.encode()}
        for fields, pointer in zip(refused_events, pointers, strict=True)
    ]
    await stream.write("dead-letter", 0, letters)
    answer = {DESTINATION: b"crm", OUTCOME: b"retry", REASON: b"status-401"}
    answer |= {STATUS: b"401", SOURCE: b"enriched:0"}
    await stream.write("receipts", 1, [stream.fields(1, minute, name) | answer for _ in range(10)])


async def test_the_owner_is_told_once_by_mail_and_webhook_what_to_do_also_over_a_restart(
    kafka: str, tmp_path: Path
) -> None:
    mailbox, posted_notices = Mailbox(refuse=2), []  # type: ignore[var-annotated]
    with mail_server(mailbox, tmp_path) as smtp:
        async with hook(posted_notices) as url:
            flights = owned("flights", {"email": "ann@example.com", "webhook": url})
            trains = owned("trains", {"email": "ben@example.com"})
            options = smtp | {
                "observe_webhook_secret_file": secret_file(tmp_path),
                "observe_url": "https://observe.example.com",
                "observe_settle_s": 100,
            }
            async with new_stream(kafka, flights, trains) as stream:
                async with stream.observing(**options) as (observer, _):
                    await refuse(stream, "flights", ["/from", "/from", "/from", "/to", "/delay"])
                    await until(lambda: len(mailbox.messages) == 2 and len(posted_notices) == 2)
                    notifier = observer.judge.notifier
                    await until(
                        lambda: (
                            [channels for _, channels in notifier.told if channels]
                            == [["webhook", "email"]] * 2
                        )
                    )
                async with stream.observing(**options):
                    # The next notices come after all that would be sent again.
                    await refuse(stream, "trains", ["/from"] * 5)
                    await until(
                        lambda: {message["To"] for message in mailbox.messages[2:]} == {"ben@example.com"}
                    )
                    await until(lambda: len(mailbox.messages) == 4)
    assert mailbox.refuse == 0
    assert {notice["data"]["kind"] for notice in posted_notices} == {"credentials", "events-refused"}
    assert len(posted_notices) == 2
    assert [message["To"] for message in mailbox.messages] == ["ann@example.com"] * 2 + [
        "ben@example.com"
    ] * 2
    messages_by_subject = {message["Subject"]: message for message in mailbox.messages}
    text = messages_by_subject["flights: A destination refuses the credentials of its pipe."].get_content()
    assert "destination crm" in text
    assert "10 outcomes in a row were 401" in text
    assert "1. Get new credentials from the destination." in text
    assert "https://observe.example.com/runbooks#credentials" in text
    refusal_message = messages_by_subject["flights: Events of a sender do not match what their pipe expects."]
    assert "/from (schema, 3)" in refusal_message.get_content()


async def test_the_owner_is_told_again_only_when_the_problem_ended_and_came_back(tmp_path: Path) -> None:
    mailbox, told_channels = Mailbox(), dict[str, list[OwnerChannel]]()

    async def record(alarm: Alarm, channels: list[OwnerChannel]) -> None:
        told_channels[alarm.id] = channels

    with mail_server(mailbox, tmp_path) as smtp:
        settings = ObserveSettings(kafka="127.0.0.1:1", stream="s", **smtp)
        notifier = OwnerNotifier(settings, lambda _: Owner(email="ann@example.com"), record)
        alarms, active_conditions = (
            Alarms(),
            {("credentials", "flights", "crm"): "10 outcomes in a row were 401"},
        )
        # Holds, is gone for less than the 120 s after which it has ended, holds, has ended, and comes back.
        for at_s, conditions in (
            (0, active_conditions),
            (60, {}),
            (100, active_conditions),
            (200, {}),
            (400, {}),
            (500, active_conditions),
        ):
            alarms.step(conditions, at_s * 1_000_000)
            for _ in range(2):
                await notifier.step([(alarm, told_channels.get(alarm.id, [])) for alarm in alarms.active])
    assert len(mailbox.messages) == 2
    assert len({message["Message-ID"] for message in mailbox.messages}) == 2
    assert told_channels == {
        f"credentials/flights/crm/{started_us}": ["email"] for started_us in (0, 500_000_000)
    }


async def test_a_new_password_in_the_file_is_used_without_a_restart(tmp_path: Path) -> None:
    mailbox, told_alarms = Mailbox(), list[Alarm]()

    async def record(alarm: Alarm, _: list[OwnerChannel]) -> None:
        told_alarms.append(alarm)

    alarms = Alarms()
    alarms.step({("credentials", "flights", "crm"): "10 outcomes in a row were 401"}, 0)
    with mail_server(mailbox, tmp_path) as smtp:
        password_file = smtp["observe_smtp_password_file"]
        right_password = password_file.read_text()
        settings = ObserveSettings(kafka="127.0.0.1:1", stream="s", **smtp)
        notifier = OwnerNotifier(settings, lambda _: Owner(email="ann@example.com"), record)
        password_file.write_text("another")
        await notifier.step([(alarm, []) for alarm in alarms.active])
        assert told_alarms == []
        password_file.write_text(right_password)
        async with asyncio.timeout(90):
            while not told_alarms:
                await notifier.step([(alarm, []) for alarm in alarms.active])
                await asyncio.sleep(0.05)
    assert told_alarms == alarms.active
    assert len(mailbox.messages) == 1


def test_a_webhook_needs_a_file_with_a_secret(tmp_path: Path) -> None:
    file = tmp_path / "webhook_secret"
    with pytest.raises(Misconfigured, match="HIFI_OBSERVE_WEBHOOK_SECRET_FILE cannot be read"):
        webhook_signer(file)
    file.write_text("whsec_!")
    with pytest.raises(Misconfigured, match="does not hold a Standard Webhooks secret"):
        webhook_signer(file)
    settings = ObserveSettings(kafka="127.0.0.1:1", stream="s", observe_webhook="https://a.example/")
    with pytest.raises(Misconfigured, match="HIFI_OBSERVE_WEBHOOK needs HIFI_OBSERVE_WEBHOOK_SECRET_FILE"):
        AlarmNotifier(settings)


def test_a_mail_server_without_a_sender_is_refused() -> None:
    settings = ObserveSettings(kafka="127.0.0.1:1", stream="s", observe_smtp_host="mail.example.com")

    async def record(_alarm: Alarm, _ways: list[OwnerChannel]) -> None: ...

    with pytest.raises(Misconfigured, match="HIFI_OBSERVE_SMTP_FROM"):
        OwnerNotifier(settings, lambda _: None, record)
