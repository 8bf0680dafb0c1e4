"""Manage answers requests made from its OpenAPI document as the document says."""

import pytest
from tests.support.generated_requests import LONG, SHORT, Requests
from tests.support.manage.managed_stream import Managed, body

from hifi.runtime.http.openapi import document
from hifi_manage.web.operations import API, OPERATIONS


@pytest.mark.parametrize("examples", [SHORT, pytest.param(LONG, marks=pytest.mark.more)])
async def test_each_answer_is_described_and_none_is_an_error_of_the_server(
    managed: Managed, examples: int
) -> None:
    creation = await managed.call(0, "PUT", "/pipes/flights", body("crm"), {"if-none-match": "*"})
    assert creation.status == 201, creation.content
    api_document = document(OPERATIONS, "1", API)
    number = str(creation.content["declared"]["number"])
    requests = Requests(
        managed.urls[0].removesuffix("/api/v1"),
        api_document,
        {"authorization": f"Bearer {managed.tokens['ann']}"},
        {"pipe": "flights", "number": number, "kind": "pause"},
    )
    assert "\n".join(await requests.problems(examples)) == ""
    answered_operations = {operation for operation, status in requests.statuses if status < 300}
    assert answered_operations >= {
        f"GET {operation.path}" for operation in OPERATIONS if operation.method == "GET"
    }
