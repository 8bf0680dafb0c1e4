"""Every kind of alarm has a runbook that opens offline, in the console as in the documentation."""

import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.observe_principal import VIEWER, principal

from hifi.control.principals.principal import Role
from hifi.runtime.health import Health
from hifi.runtime.http.openapi import document
from hifi_observe.alarms import runbook_markdown, runbooks
from hifi_observe.alarms.alarm import KINDS, Alarm
from hifi_observe.alarms.runbook_markdown import markdown
from hifi_observe.alarms.runbooks import RUNBOOKS, Runbook, link, spans
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings
from hifi_observe.web.operations import API, OPERATIONS

DOCS = Path(__file__).parents[4] / "docs"


@pytest.fixture
async def page(monkeypatch: pytest.MonkeyPatch) -> str:
    """The console's page, as an instance serves it that has reached nothing, not even Kafka."""
    settings = ObserveSettings(kafka="127.0.0.1:1", stream="s")
    observer = Observer(settings, Health("observe", "i"))
    monkeypatch.setattr(TopicCopy, "read", True)
    viewer = principal("viewer", Role.VIEWER)
    observer.principals.principals.take(b"viewer", viewer.record().value, 0)
    app = observer.application()
    sent_messages: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent_messages.append(message)

    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": runbooks.PATH, "query_string": b""}
    scope["headers"] = [(b"host", b"127.0.0.1"), (b"authorization", VIEWER["authorization"].encode())]
    await app(scope, receive, send)
    assert sent_messages[0]["status"] == 200
    return str(sent_messages[1]["body"], "utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_says_what_it_means_its_causes_and_what_to_do(kind: str) -> None:
    book = RUNBOOKS[kind]
    assert book.means
    assert book.causes
    assert any(code for step in book.steps for code, _ in spans(step)), "a command or a name to look for"


def test_there_is_no_runbook_without_an_alarm() -> None:
    assert list(RUNBOOKS) == list(KINDS)


async def test_the_link_of_every_alarm_leads_to_its_section(page: str) -> None:
    for kind in KINDS:
        path, _, anchor = Alarm("i", kind, "", "", "", 0).json()["runbook"].partition("#")
        assert path == runbooks.PATH
        assert f'<h2 id="{anchor}"' in page


async def test_page_and_documentation_say_the_same(page: str) -> None:
    document = (DOCS / "runbooks.md").read_text()
    assert markdown() in document, "run: python -m hifi_cli.reference docs"

    def words(text: str) -> str:
        return re.sub(r"[\s`]+", " ", text)

    shown_words = words(re.sub(r"</?code>", "`", page).replace("&#39;", "'"))
    for book in RUNBOOKS.values():
        for text in (book.means, *book.causes, *book.steps):
            assert words(text) in shown_words
            assert words(text) in words(document)


def test_a_link_is_whole_where_the_address_of_the_console_is_known() -> None:
    assert link("lag") == "/runbooks#lag"
    assert link("lag", "https://observe.example/") == "https://observe.example/runbooks#lag"


def test_code_is_never_broken_over_lines() -> None:
    runbook = Runbook("word " * 40 + "`kafka-configs.sh --bootstrap-server KAFKA --describe`", ("x",), ("y",))
    section = runbook_markdown._section("kind", runbook)
    assert "`kafka-configs.sh --bootstrap-server KAFKA --describe`" in section


def test_the_document_of_the_api_promises_breaker_and_runbook() -> None:
    schemas = document(OPERATIONS, "1", API)["components"]["schemas"]
    assert schemas["DestinationNow"]["properties"]["breaker"] == {"$ref": "#/components/schemas/BreakerView"}
    assert schemas["BreakerView"]["properties"]["state"]["enum"] == [
        "open", "paused", "half-open", "closed", "unknown",
    ]  # fmt: skip
    assert schemas["AlarmList"]["properties"]["active"]["items"] == {"$ref": "#/components/schemas/AlarmJson"}
    assert "runbook" in schemas["AlarmJson"]["required"]
