"""The outcome that a test event shows before a pipe is published."""

from typing import Any

import orjson

from hifi.pipe.model import Pipe
from hifi.runtime.clock import now_us
from hifi_manage.trial import Trial, try_event

BODY: dict[str, Any] = {
    "pipe": "flights",
    "source": {"keys": [{"env": "K"}]},
    "normalize": {
        "schema": {"type": "object", "required": ["from"]},
        "mask": {"name": "redact", "phone": {"hash": {"env": "NOT_SET"}}},
    },
    "destinations": [
        {
            "name": "crm",
            "url": "https://crm.example.com/in",
            "format": "json",
            "transform": "{departure: from, phone: phone}",
            "headers": {"authorization": {"env": "NOT_SET_EITHER", "prefix": "Bearer "}, "x-team": "a"},
        },
        {"name": "log", "url": "https://log.example.com/"},
        {"name": "odd", "url": "https://odd.example.com/", "transform": "from[0].x"},
    ],
}


def trial(data: dict[str, Any], **changes: Any) -> Trial:
    return try_event(Pipe.model_validate(BODY | changes), orjson.dumps(data), now_us())


def test_each_destination_shows_its_request_without_secrets() -> None:
    outcome = trial({"from": "BER", "name": "Ann", "phone": "1"})
    assert outcome.refused is None
    assert orjson.loads(outcome.data or "") == {"from": "BER", "name": "[redacted]", "phone": "[redacted]"}
    crm, log, odd = outcome.deliveries
    assert crm.request is not None
    head, _, body = crm.request.partition("\n\n")
    assert head.startswith("POST /in HTTP/1.1\nHost: crm.example.com\n")
    assert "authorization: Bearer (secret)\n" in head
    assert "x-team: a\n" in head
    assert orjson.loads(body) == {"departure": "BER", "phone": "[redacted]"}
    assert log.request is not None
    assert "ce-type: flights.test\n" in log.request
    assert (odd.request, odd.reason) == (None, "transform-failed: the transform returns null")
    assert ["hashes" in reason for reason in outcome.not_evaluated] == [True]


def test_an_event_that_the_pipe_refuses_shows_why_and_goes_nowhere() -> None:
    outcome = trial({"to": "BER"})
    assert outcome.refused is not None
    assert outcome.refused[0] == "schema"
    assert (outcome.data, outcome.deliveries) == (None, ())


def test_what_needs_spark_or_code_of_users_is_named_and_left_out() -> None:
    outcome = trial(
        {"from": "BER"},
        enrich={"fields": {"from": "string"}, "filter": "from = 'X'"},
        source={"keys": [{"env": "K"}], "mask": {"data": {"name": "drop"}}},
    )
    assert [reason.split("`")[1] for reason in outcome.not_evaluated] == [
        "source.mask",
        "normalize.mask",
        "enrich",
    ]
    assert len(outcome.deliveries) == 3
