"""A real SMTP server on the loopback interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller

from hifi_infra.ports import free_port


class Mailbox:
    """Handler of the server: keeps messages, and refuses as many attempts as `refuse` says."""

    def __init__(self, refuse: int = 0) -> None:
        self.messages: list[EmailMessage] = []
        self.refuse = refuse

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        if self.refuse:
            self.refuse -= 1
            return "451 try again later"
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        self.messages.append(message)
        return "250 OK"


@contextmanager
def mail_server(mailbox: Mailbox) -> Iterator[dict[str, Any]]:
    """Run it in a thread; returns observe's settings for it."""
    port = free_port()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield {
            "observe_smtp_host": "127.0.0.1",
            "observe_smtp_port": port,
            "observe_smtp_tls": "none",
            "observe_smtp_from": "hifi@example.com",
        }
    finally:
        controller.stop()
