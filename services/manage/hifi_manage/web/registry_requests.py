"""Bodies and parameters of the schema registry's requests."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from starlette.requests import Request

from hifi.avro.schema import PRIMITIVES
from hifi.runtime.http.parameters import whole_number
from hifi_manage.schemas.compatibility_level import Level
from hifi_manage.schemas.refusals import (
    INVALID_LEVEL,
    INVALID_SCHEMA,
    INVALID_VERSION,
    NOT_IMPORTING,
    RegistryRefusal,
)
from hifi_manage.schemas.registered import Reference, SchemaBody
from hifi_manage.web.pipe_requests import body_of

_LATEST: Final = ("latest", "-1")
_MOST_VERSIONS: Final = 2**31 - 1


async def schema_of(request: Request, *, registers: bool = False) -> SchemaBody:
    """The schema in a request.

    Raises:
        RegistryRefusal: 422, there is none, or it has something that this registry does not do.
        Problem: 413, it is too large.
    """
    body = await _object_of(request)
    schema_type = body.get("schemaType") or "AVRO"
    if schema_type != "AVRO":
        raise RegistryRefusal(
            INVALID_SCHEMA, f"Invalid schema type {schema_type}: this registry has Avro schemas only"
        )
    if unknown_fields := [name for name in ("metadata", "ruleSet") if body.get(name) is not None]:
        raise RegistryRefusal(
            INVALID_SCHEMA, f"Invalid schema: this registry has no {' and no '.join(unknown_fields)}"
        )
    if registers and body.get("id") not in (None, -1, 0):
        raise RegistryRefusal(NOT_IMPORTING, "The registry gives the ids; leave `id` out")
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise RegistryRefusal(INVALID_SCHEMA, "Empty schema")
    try:
        references = tuple(
            Reference(str(reference["name"]), str(reference["subject"]), int(reference["version"]))
            for reference in body.get("references") or ()
        )
    except (KeyError, TypeError, ValueError):
        raise RegistryRefusal(
            INVALID_SCHEMA, "Invalid references: each has name, subject and version"
        ) from None
    return SchemaBody(_minified(text), references)


async def level_of(request: Request) -> Level:
    """The compatibility level in a request.

    Raises:
        RegistryRefusal: 42203, it is none.
        Problem: 413, the body is too large.
    """
    body = await _object_of(request)
    try:
        return Level(str(body.get("compatibility")).upper())
    except ValueError:
        raise RegistryRefusal(
            INVALID_LEVEL, f"Invalid compatibility level. Valid values are {', '.join(Level)}"
        ) from None


def version_of(request: Request) -> int | None:
    """The version in the path; None: the newest one.

    Raises:
        RegistryRefusal: 42202, it is none.
    """
    text = request.path_params["version"]
    if text in _LATEST:
        return None
    version = whole_number(text, _MOST_VERSIONS)
    if not version:
        raise RegistryRefusal(
            INVALID_VERSION,
            f"The specified version '{text}' is not a valid version id. Allowed values are between [1, 2^31-1] and the"
            ' string "latest"',
        )
    return version


def is_set(request: Request, name: str) -> bool:
    """Whether a query parameter is `true`."""
    return request.query_params.get(name, "").lower() == "true"


async def _object_of(request: Request) -> Mapping[str, Any]:
    try:
        body = orjson.loads(await body_of(request))
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        raise RegistryRefusal(INVALID_SCHEMA, "The body is not a JSON object")
    return body


def _minified(text: str) -> str:
    """The schema as it is stored: JSON without white space."""
    try:
        return orjson.dumps(orjson.loads(text)).decode()
    except orjson.JSONDecodeError:
        text = text.strip()
        return (
            f'"{text}"' if text in PRIMITIVES else text
        )  # older clients write `string` without quotation marks
