"""A real SMTP server on the loopback interface."""

from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Final

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from hifi_infra.ports import free_port

USER: Final = "hifi"
PASSWORD: Final = "mail-password"


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


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, login: Any) -> AuthResult:
    is_right = login == LoginPassword(USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_right, handled=False)


@contextmanager
def mail_server(mailbox: Mailbox, folder: Path) -> Iterator[dict[str, Any]]:
    """Run it in a thread; returns observe's settings for it, whose file with the password is written to a folder."""
    password_file = folder / "mail_password"
    password_file.write_text(f"{PASSWORD}\n")
    port = free_port()
    controller = Controller(
        mailbox,
        hostname="127.0.0.1",
        port=port,
        authenticator=_authenticate,
        auth_required=True,
        auth_require_tls=False,
    )
    controller.start()
    try:
        yield {
            "observe_smtp_host": "127.0.0.1",
            "observe_smtp_port": port,
            "observe_smtp_tls": "none",
            "observe_smtp_user": USER,
            "observe_smtp_password_file": password_file,
            "observe_smtp_from": "hifi@example.com",
        }
    finally:
        controller.stop()
