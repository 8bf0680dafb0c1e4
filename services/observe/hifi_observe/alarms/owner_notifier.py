"""Tell the owner of a pipe, once, of what only they can repair: by webhook and by e-mail."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Any, Final

import aiohttp
import aiosmtplib
import orjson
from standardwebhooks import Webhook

from hifi.pipe.owner import Owner
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.egress import EgressKind, egress
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_observe.alarms import runbooks
from hifi_observe.alarms.alarm import KINDS, Alarm, OwnerChannel
from hifi_observe.alarms.owner_conditions import OWNER_KINDS
from hifi_observe.settings import ObserveSettings

_TIMEOUT_S: Final = 10.0
_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 300.0

Told = Callable[[Alarm, list[OwnerChannel]], Awaitable[None]]
"""Records by which ways the owner was told of an alarm, all of them so far; may raise HifiError or TimeoutError."""
logger = log.get(__name__)


class OwnerNotifier:
    """Sends notices until each has been accepted, with pauses of 1 s to 5 min between attempts.

    Args:
        settings: of the service.
        owner: returns the owner of a pipe; None: it names none.
        told: records what was sent, so that no instance sends it again.

    Raises:
        Misconfigured: the settings of e-mails do not fit together, or the secret of webhooks is not valid.
    """

    def __init__(self, settings: ObserveSettings, owner: Callable[[str], Owner | None], told: Told) -> None:
        self._settings = settings
        self._owner = owner
        self._told = told
        self._waits: dict[str, tuple[float, int]] = {}
        """Alarm to the pause after the next failure, seconds, and to the time of the next attempt, microseconds."""
        if settings.observe_smtp_host and not settings.observe_smtp_from:
            raise Misconfigured(
                "set HIFI_OBSERVE_SMTP_FROM, the sender of e-mails, beside HIFI_OBSERVE_SMTP_HOST"
            )
        try:
            secret = settings.observe_webhook_secret
            self._webhook = Webhook(secret) if secret else None
        except Exception as error:  # noqa: BLE001 - the library's error derives from nothing narrower
            raise Misconfigured(
                f"HIFI_OBSERVE_WEBHOOK_SECRET is not a valid Standard Webhooks secret: {error}"
            ) from None

    async def step(self, alarms: Iterable[tuple[Alarm, list[OwnerChannel]]]) -> None:
        """Tell the owners of alarms by the ways in which they were not told yet.

        Args:
            alarms: that have not ended, each with the ways in which its owner was told.
        """
        now, due = now_us(), []
        of_owners = [(alarm, told_ways) for alarm, told_ways in alarms if alarm.kind in OWNER_KINDS]
        ids = {alarm.id for alarm, _ in of_owners}
        self._waits = {name: wait for name, wait in self._waits.items() if name in ids}
        for alarm, told_ways in of_owners:
            owner = self._owner(alarm.pipe)
            if owner is None or alarm.silenced or self._waits.get(alarm.id, (0, 0))[1] > now:
                continue
            if missing_ways := [way for way in self._ways(owner) if way not in told_ways]:
                due.append(self._tell(alarm, owner, told_ways, missing_ways))
        await asyncio.gather(*due)

    def _ways(self, owner: Owner) -> list[OwnerChannel]:
        ways: list[OwnerChannel] = []
        if owner.webhook is not None:
            ways.append("webhook")
        if owner.email is not None and self._settings.observe_smtp_host:
            ways.append("email")
        return ways

    async def _tell(
        self, alarm: Alarm, owner: Owner, told_ways: list[OwnerChannel], missing_ways: list[OwnerChannel]
    ) -> None:
        wait_s = self._waits.get(alarm.id, (_FIRST_WAIT_S, 0))[0]
        self._waits[alarm.id] = (min(wait_s * 2, _LONGEST_WAIT_S), now_us() + round(wait_s * 1e6))
        all_ways = list(told_ways)
        for way in missing_ways:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await (self._post(alarm, owner) if way == "webhook" else self._mail(alarm, owner))
            except (
                HifiError,
                OSError,
                TimeoutError,
                aiohttp.ClientError,
                aiosmtplib.SMTPException,
            ) as error:
                logger.warning("owner-not-told", alarm=alarm.id, way=way, error=repr(error))
                continue
            all_ways.append(way)
            logger.info("owner-told", alarm=alarm.id, way=way)
        if all_ways != told_ways:
            await self._told(alarm, all_ways)

    async def _post(self, alarm: Alarm, owner: Owner) -> None:
        url = str(owner.webhook)
        identity, moment = f"{alarm.id}/notice", datetime.now(UTC)
        body = orjson.dumps({"type": "hifi.notice", "data": self._notice(alarm)}).decode()
        headers = {"content-type": "application/json", "webhook-id": identity}
        if self._webhook is not None:
            headers |= {
                "webhook-timestamp": str(int(moment.timestamp())),
                "webhook-signature": self._webhook.sign(identity, moment, body),
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
            password=settings.observe_smtp_password or None,
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
        where = f", destination {alarm.subject}" if alarm.subject else ""
        since = datetime.fromtimestamp(alarm.started_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        message.set_content(
            f"{notice['summary']}\n\nPipe {alarm.pipe}{where}, since {since}: {alarm.cause}.\n\n{notice['means']}\n\n"
            f"What to do:\n{steps}\n\nMore: {notice['runbook']}\n\n"
            "You get this message once. You get another one if the problem ends and comes back.\n"
        )
        return message

    def _notice(self, alarm: Alarm) -> dict[str, Any]:
        book = runbooks.RUNBOOKS[alarm.kind]
        return {
            "id": alarm.id,
            "kind": alarm.kind,
            "pipe": alarm.pipe,
            "subject": alarm.subject,
            "summary": KINDS[alarm.kind].summary,
            "cause": alarm.cause,
            "means": book.means,
            "steps": [text.replace("`", "") for text in book.steps],
            "started_us": alarm.started_us,
            "runbook": runbooks.link(alarm.kind, self._settings.observe_url),
        }
