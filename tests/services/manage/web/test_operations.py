"""The OpenAPI document of manage."""

from tests.support.openapi_documents import references

from hifi.runtime.http.openapi import document
from hifi_manage.web.api import ManagementApi
from hifi_manage.web.operations import API, NEEDS, OPERATIONS


def test_every_reference_leads_to_a_component() -> None:
    api_document = document(OPERATIONS, "1", API)
    schema_names = {reference.removeprefix("#/components/schemas/") for reference in references(api_document)}
    assert {"Pipe", "PipeView", "RolloutStatus", "AuditEntry", "TrialRequest", "Problem"} <= schema_names
    assert schema_names <= api_document["components"]["schemas"].keys()


def test_every_operation_has_a_handler_and_a_role() -> None:
    assert {operation.name for operation in OPERATIONS} | {"openapi"} == NEEDS.keys()
    assert all(callable(getattr(ManagementApi, name)) for name in NEEDS)
