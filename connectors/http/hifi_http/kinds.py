"""The kind `http`, as its entry point names it. The client and the signatures are imported where they are used."""

from typing import Final

from aiokafka import ConsumerRecord

from hifi.delivery.sender import SendableRequest, Sender, SenderContext, SenderKind
from hifi_http.declaration import HttpDestination

_HIDDEN: Final = "(secret)"


def _open(destination: HttpDestination, context: SenderContext) -> Sender[SendableRequest]:
    from hifi_http.destination.sender import RequestSender

    return RequestSender(destination, context)


def _check(destination: HttpDestination) -> None:
    from hifi_http.destination.request_template import RequestTemplate

    headers = {name: value for name, value in destination.headers.items() if isinstance(value, str)}
    RequestTemplate(destination, headers, [])


def _example(destination: HttpDestination, record: ConsumerRecord, now_us: int) -> bytes:
    from hifi_http.destination.request_template import RequestTemplate

    headers = {
        name: value if isinstance(value, str) else value.prefix + _HIDDEN
        for name, value in destination.headers.items()
    }
    token = "" if destination.oauth is None else _HIDDEN
    template = RequestTemplate(destination, headers, [], token)
    return template.request([record], [template.part(record)], now_us)


HTTP: Final = SenderKind(HttpDestination, _open, _check, _example)
