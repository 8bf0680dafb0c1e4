"""The OpenAPI document of observe."""

from tests.support.openapi_documents import references

from hifi.runtime.http.openapi import document
from hifi_observe.web.api import Api
from hifi_observe.web.operations import API, OPERATIONS


def test_every_reference_leads_to_a_component() -> None:
    api_document = document(OPERATIONS, "1", API)
    schema_names = {reference.removeprefix("#/components/schemas/") for reference in references(api_document)}
    assert {"PipeNow", "AlarmList", "WatchedFields", "SilenceRequest", "Problem"} <= schema_names
    assert schema_names <= api_document["components"]["schemas"].keys()


def test_every_operation_has_a_handler() -> None:
    assert all(callable(getattr(Api, operation.name)) for operation in OPERATIONS)
