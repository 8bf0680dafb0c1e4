"""Tell the owner of a pipe, once, of what only they can repair: by webhook and by e-mail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final

import aiohttp
import aiosmtplib
import orjson

from hifi.pipe.owner import Owner
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import HifiError, Misconfigured
from hifi.runtime.settings import read_secret
from hifi_observe.alarms import runbooks
from hifi_observe.alarms.alarm import KINDS, Alarm, OwnerChannel
from hifi_observe.alarms.owner_conditions import OWNER_KINDS
from hifi_observe.alarms.webhook_signature import webhook_signer
from hifi_observe.settings import ObserveSettings

_TIMEOUT_S: Final = 10.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0

RecordChannels = Callable[[Alarm, list[OwnerChannel]], Awaitable[None]]
"""Records all channels by which the owner was notified of an alarm so far; may raise HifiError or TimeoutError."""
logger = log.get(__name__)


class OwnerNotifier:
    """Sends notices until each has been accepted, with pauses of 1 s to 5 min between attempts.

    Args:
        settings: of the service.
        owner: returns the owner of a pipe; None: it names none.
        record_channels: records the channels that were used, so that no instance uses them again.

    Raises:
        Misconfigured: the settings of e-mails do not fit together, or the secret of webhooks is not valid.
    """

    def __init__(
        self, settings: ObserveSettings, owner: Callable[[str], Owner | None], record_channels: RecordChannels
    ) -> None:
        self._settings = settings
        self._owner = owner
        self._record_channels = record_channels
        self._waits: dict[str, tuple[float, int]] = {}
        """Alarm to the pause after the next failure, seconds, and to the time of the next attempt, microseconds."""
        if settings.observe_smtp_host and not settings.observe_smtp_from:
            raise Misconfigured(
                "set HIFI_OBSERVE_SMTP_FROM, the sender of e-mails, beside HIFI_OBSERVE_SMTP_HOST"
            )
        self._webhook = webhook_signer(settings.observe_webhook_secret_file)

    async def step(self, alarms: Iterable[tuple[Alarm, list[OwnerChannel]]]) -> None:
        """Notify the owners of alarms by the channels by which they were not notified yet.

        Args:
            alarms: that have not ended, each with the channels by which its owner was notified.
        """
        step_us, notices = now_us(), []
        owner_alarms = [
            (alarm, sent_channels) for alarm, sent_channels in alarms if alarm.kind in OWNER_KINDS
        ]
        ids = {alarm.id for alarm, _ in owner_alarms}
        self._waits = {name: wait for name, wait in self._waits.items() if name in ids}
        for alarm, sent_channels in owner_alarms:
            owner = self._owner(alarm.pipe)
            is_silenced = alarm.silenced is not None
            if owner is None or is_silenced or self._waits.get(alarm.id, (0, 0))[1] > step_us:
                continue
            if missing_channels := [
                channel for channel in self._channels(owner) if channel not in sent_channels
            ]:
                notices.append(self._tell(alarm, owner, sent_channels, missing_channels))
        await asyncio.gather(*notices)

    def _channels(self, owner: Owner) -> list[OwnerChannel]:
        channels: list[OwnerChannel] = []
        if owner.webhook is not None:
            channels.append("webhook")
        if owner.email is not None and self._settings.observe_smtp_host:
            channels.append("email")
        return channels

    async def _tell(
        self,
        alarm: Alarm,
        owner: Owner,
        sent_channels: list[OwnerChannel],
        missing_channels: list[OwnerChannel],
    ) -> None:
        wait_s = self._waits.get(alarm.id, (_FIRST_WAIT_S, 0))[0]
        self._waits[alarm.id] = (min(wait_s * 2, _LONGEST_WAIT_S), now_us() + round(wait_s * 1e6))
        all_channels = list(sent_channels)
        for channel in missing_channels:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await (self._post(alarm, owner) if channel == "webhook" else self._mail(alarm, owner))
            except Exception as error:  # noqa: BLE001 - any error of an address; the other owners get their message
                logger.warning("owner-not-told", alarm=alarm.id, way=channel, error=repr(error))
                continue
            all_channels.append(channel)
            logger.info("owner-told", alarm=alarm.id, way=channel)
        if all_channels != sent_channels:
            await self._record_channels(alarm, all_channels)

    async def _post(self, alarm: Alarm, owner: Owner) -> None:
        url = str(owner.webhook)
        identity, sent_at = f"{alarm.id}/notice", datetime.now(UTC)
        body = orjson.dumps({"type": "hifi.notice", "data": self._notice(alarm)}).decode()
        headers = {"content-type": "application/json", "webhook-id": identity}
        if self._webhook is not None:
            headers |= {
                "webhook-timestamp": str(int(sent_at.timestamp())),
                "webhook-signature": self._webhook.sign(identity, sent_at, body),
            }
        async with (
            aiohttp.ClientSession(connector=egress(alarm.pipe).connector(EgressKind.NOTICE, url)) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status >= 300:
                raise HifiError(f"the webhook answered {answer.status}")

    async def _mail(self, alarm: Alarm, owner: Owner) -> None:
        settings = self._settings
        await aiosmtplib.send(
            self._message(alarm, owner),
            hostname=settings.observe_smtp_host,
            port=settings.observe_smtp_port,
            username=settings.observe_smtp_user or None,
            password=read_secret(settings.observe_smtp_password_file, "HIFI_OBSERVE_SMTP_PASSWORD_FILE")
            or None,
            use_tls=settings.observe_smtp_tls == "tls",
            start_tls=settings.observe_smtp_tls == "starttls",
            timeout=_TIMEOUT_S,
        )

    def _message(self, alarm: Alarm, owner: Owner) -> EmailMessage:
        notice = self._notice(alarm)
        message = EmailMessage()
        message["From"] = self._settings.observe_smtp_from
        message["To"] = owner.email
        message["Subject"] = f"{alarm.pipe}: {notice['summary']}"
        # The same for each attempt, so that a mail server can drop a second copy.
        message["Message-ID"] = f"<{alarm.kind}.{alarm.pipe}.{alarm.started_us}@{self._settings.stream}.hifi>"
        message["Auto-Submitted"] = "auto-generated"
        steps = "\n".join(f"{number}. {text}" for number, text in enumerate(notice["steps"], 1))
        destination_text = f", destination {alarm.subject}" if alarm.subject else ""
        since_text = datetime.fromtimestamp(alarm.started_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        message.set_content(
            f"{notice['summary']}\n\nPipe {alarm.pipe}{destination_text}, since {since_text}: {alarm.cause}.\n\n"
            f"{notice['means']}\n\n"
            f"What to do:\n{steps}\n\nMore: {notice['runbook']}\n\n"
            "You get this message once. You get another one if the problem ends and comes back.\n"
        )
        return message

    def _notice(self, alarm: Alarm) -> dict[str, Any]:
        runbook = runbooks.RUNBOOKS[alarm.kind]
        return {
            "id": alarm.id,
            "kind": alarm.kind,
            "pipe": alarm.pipe,
            "subject": alarm.subject,
            "summary": KINDS[alarm.kind].summary,
            "cause": alarm.cause,
            "means": runbook.means,
            "steps": [text.replace("`", "") for text in runbook.steps],
            "started_us": alarm.started_us,
            "runbook": runbooks.link(alarm.kind, self._settings.observe_url),
        }
