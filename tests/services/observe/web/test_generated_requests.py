"""Observe answers requests made from its OpenAPI document as the document says."""

import pytest
from tests.support.generated_requests import LONG, SHORT, Requests
from tests.support.observe.api_requests import ask, past_minute, until
from tests.support.observe.stream_double import new_stream
from tests.support.observe_principal import as_principal

from hifi.runtime.http.openapi import document
from hifi_observe.web.operations import API, OPERATIONS


@pytest.mark.parametrize("examples", [SHORT, pytest.param(LONG, marks=pytest.mark.more)])
async def test_each_answer_is_described_and_none_is_an_error_of_the_server(kafka: str, examples: int) -> None:
    minute = past_minute()
    async with new_stream(kafka) as stream:
        await stream.events(0, minute, 20, lose={"normalized": [3], "receipts": [7]})
        await stream.commit(0)
        async with stream.observing() as (_, url):
            await until(url, f"/api/v1/pipes/flights/minutes/{minute}", lambda body: body.get("in") == 20)
            api_document = document(OPERATIONS, "1", API)
            assert (await ask(url, "/openapi.json"))["paths"] == api_document["paths"]
            requests = Requests(
                url, api_document, as_principal("admin"), {"pipe": "flights", "minute": str(minute)}
            )
            assert "\n".join(await requests.problems(examples)) == ""
    answered_operations = {operation for operation, status in requests.statuses if status == 200}
    # A stream with one colour has no minutes over both, and no generated id is that of an event.
    excluded_names = {"colours", "event"}
    assert answered_operations >= {
        f"{operation.method} {operation.path}"
        for operation in OPERATIONS
        if operation.name not in excluded_names
    }
