"""Ingest answers requests made from its OpenAPI document as the document says."""

import orjson
import pytest
from tests.support.generated_requests import LONG, SHORT, Requests
from tests.support.ingest.ingest_harness import KEY, Ingest

from hifi_ingest.http.openapi import DOCUMENT


@pytest.mark.parametrize("examples", [SHORT, pytest.param(LONG, marks=pytest.mark.more)])
async def test_each_answer_is_described_and_none_is_an_error_of_the_server(
    running_ingest: Ingest, examples: int
) -> None:
    requests = Requests(
        running_ingest.url, orjson.loads(DOCUMENT), {"authorization": f"Bearer {KEY}"}, {"pipe": "flights"}
    )
    assert "\n".join(await requests.problems(examples)) == ""
    accepted_operations = {operation for operation, status in requests.statuses if status == 202}
    assert accepted_operations == {"POST /v1/events", "POST /v1/pipes/{pipe}/events"}
