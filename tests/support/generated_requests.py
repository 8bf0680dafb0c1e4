"""Requests made from an OpenAPI document, valid and invalid: each answer is one that the document describes.

schemathesis makes the requests and judges the answers; statuses of 500 and above need a reason.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import Case, GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

SHORT: Final = 4
"""Examples of each operation and mode within CI."""
LONG: Final = 200
_CHECKS: Final = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    unsupported_method,
]
_TIMEOUT_S: Final = 30


@dataclass(slots=True)
class Requests:
    """Sends requests of all operations of a document, and notes answers that it does not describe.

    Attributes:
        url: of the service.
        document: as it serves it.
        headers: of each request.
        path_values: names of path parameters to values that exist; half of the requests have them.
        unavailable: operations that may answer 503 although the service is ready.
        statuses: operation and status to the number of its answers.
    """

    url: str
    document: Mapping[str, Any]
    headers: Mapping[str, str]
    path_values: Mapping[str, str] = field(default_factory=dict)
    unavailable: Sequence[str] = ()
    statuses: dict[tuple[str, int], int] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)

    async def problems(self, examples: int) -> list[str]:
        """Send this many requests for each operation, valid and invalid; return what is wrong with their answers."""
        return await asyncio.to_thread(self._problems, examples)

    def _problems(self, examples: int) -> list[str]:
        schema = schemathesis.openapi.from_dict(dict(self.document))
        problems: dict[str, None] = {}
        with requests.Session() as session:
            for prepared in schema.get_all_operations():
                assert isinstance(prepared, Ok), prepared
                operation = prepared.ok()
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    for case in _cases(operation.as_strategy(mode), examples):
                        self._use_existing(case)
                        if problem := self._problem(case, session):
                            problems[problem] = None
        return list(problems)

    def _use_existing(self, case: Case[Any]) -> None:
        """Give every second request to an operation the values that exist."""
        self._asked[case.operation.label] = ask_count = self._asked.get(case.operation.label, 0) + 1
        if ask_count % 2:
            parameters = case.path_parameters
            parameters.update(
                {name: self.path_values[name] for name in parameters if name in self.path_values}
            )

    def _problem(self, case: Case[Any], session: requests.Session) -> str | None:
        label = case.operation.label
        answer = case.call(self.url, session, {**self.headers}, timeout=_TIMEOUT_S)
        key = (label, answer.status_code)
        self.statuses[key] = self.statuses.get(key, 0) + 1
        if answer.status_code >= 500 and not (answer.status_code == 503 and label in self.unavailable):
            return f"{label}: {answer.status_code} {answer.text[:300]}; {case.as_curl_command()}"
        try:
            case.validate_response(answer, checks=_CHECKS)
        except FailureGroup as failures:
            first = failures.exceptions[0]
            return f"{label}: {answer.status_code} {str(first)[:600]}; {case.as_curl_command()[:500]}"
        return None


def _cases(strategy: SearchStrategy[Case[Any]], examples: int) -> list[Case[Any]]:
    """The same cases of an operation in each run; none, if there is no invalid request."""
    cases: list[Case[Any]] = []

    @seed(7)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(case=strategy)
    def take(case: Case[Any]) -> None:
        cases.append(case)

    with contextlib.suppress(Unsatisfiable):
        take()
    return cases
