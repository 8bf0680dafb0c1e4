"""View answers requests made from its OpenAPI document as the document says."""

from pathlib import Path

import pytest
from tests.support.generated_requests import LONG, SHORT, Requests
from tests.support.view.view_stream import KEY, ViewStream, viewing

from hifi.runtime.http.openapi import document
from hifi_view.web import api
from hifi_view.web.operations import API, OPERATIONS


@pytest.mark.parametrize("examples", [SHORT, pytest.param(LONG, marks=pytest.mark.more)])
async def test_each_answer_is_described_and_none_is_an_error_of_the_server(
    stream: ViewStream, tmp_path: Path, examples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "_STREAM_S", 0.01)  # a stream that goes on keeps the next request waiting
    monkeypatch.setattr(api, "_CHANGE_WAIT_S", 0.01)
    await stream.events({"flight": "UA1", "delay": 1}, {"delay": 2})
    async with viewing(stream, tmp_path, view_wait_s=0.1) as (client, _):
        await client.rows()
        api_document = document(OPERATIONS, "1", API)
        assert (await client.ask("/openapi.json", None))[1]["paths"] == api_document["paths"]
        requests = Requests(
            client.url,
            api_document,
            {"authorization": f"Bearer {KEY}"},
            {"name": "flights-now", "key": "UA1"},
        )
        assert "\n".join(await requests.problems(examples)) == ""
    answered_operations = {operation for operation, status in requests.statuses if status == 200}
    assert answered_operations >= {
        f"{operation.method} {operation.path}" for operation in OPERATIONS if operation.method == "GET"
    }
