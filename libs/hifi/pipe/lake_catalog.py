"""Settings of an Iceberg catalog in a pipe: its address, and its properties by name and form of the value.

pyiceberg imports the class that a property such as `py-io-impl` names, and opens the file that another one names. A
pipe is input, so only the names listed here reach pyiceberg, and only with values of their form. The same function
judges a pipe at `hifi check`, at publication, and in lake whenever it opens a table.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hifi.pipe.endpoint_url import refuse_base_url
from hifi.pipe.limits import PipeLimits, resolved_path

_TEXT: Final = r"[^\x00-\x1f\x7f]+"
_URL: Final = r"https?://[^/?#@\s\x00-\x1f\x7f]+([/?][^#\s\x00-\x1f\x7f]*)?"
"""A URL without user, password and fragment: it is published."""
_HOST: Final = rf"{_URL}|[A-Za-z0-9.-]+(:\d+)?"
_FLAG: Final = r"(?i:true|false)"
_NUMBER: Final = r"\d+(\.\d+)?"
_NAME: Final = r"[A-Za-z0-9_-]+"
_PATH: Final = r"(?!(.*/)?\.\.?(/|$))[A-Za-z0-9_.~%/-]+"

FILE_PROPERTIES: Final[Mapping[str, str]] = {
    "s3.endpoint": _HOST,
    "s3.access-key-id": _TEXT,
    "s3.secret-access-key": _TEXT,
    "s3.session-token": _TEXT,
    "s3.region": _NAME,
    "s3.resolve-region": _FLAG,
    "s3.force-virtual-addressing": _FLAG,
    "s3.anonymous": _FLAG,
    "s3.connect-timeout": _NUMBER,
    "s3.request-timeout": _NUMBER,
    "client.access-key-id": _TEXT,
    "client.secret-access-key": _TEXT,
    "client.session-token": _TEXT,
    "client.region": _NAME,
}
"""Name of each property of S3 files that pyiceberg gets, and the form of its value."""

REST_PROPERTIES: Final[Mapping[str, str]] = {
    "token": _TEXT,
    "credential": _TEXT,
    "oauth2-server-uri": _URL,
    "scope": _TEXT,
    "audience": _TEXT,
    "resource": _TEXT,
    "prefix": _PATH,
    "rest-page-size": _NUMBER,
    "rest.sigv4-enabled": _FLAG,
    "rest.signing-region": _NAME,
    "rest.signing-name": _NAME,
    "rest.sigv4.max-retries": _NUMBER,
    "header.X-Iceberg-Access-Delegation": r"[A-Za-z0-9_,-]+",
    "header.Polaris-Realm": _NAME,
    **FILE_PROPERTIES,
}
"""Name of each property that a pipe may set for a REST catalog, and the form of its value."""

SERVER_PROPERTIES: Final[Mapping[str, str]] = {
    "uri": _URL,
    "prefix": _PATH,
    "namespace-separator": r"[\x1f!-~]+",
    "view-endpoints-supported": _FLAG,
    **FILE_PROPERTIES,
}
"""Name of each property that the server of a REST catalog may set, and the form of its value."""

_SQLITE: Final = re.compile(r"sqlite:///(/[^?#\x00-\x1f\x7f]+)")


def catalog_refusals(
    settings: Mapping[str, Any], limits: PipeLimits
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path in the settings of a destination of the kind `iceberg`, and why a pipe may not say what is there."""
    warehouse, catalog = str(settings.get("warehouse", "")), settings.get("catalog")
    if reason := _refuse_text(warehouse) or limits.refuse_warehouse(warehouse):
        yield ("warehouse",), reason
    is_sql = catalog is None or str(catalog).startswith("sqlite")
    if not is_sql:
        url = str(catalog)
        if reason := _refuse_text(url) or refuse_base_url(url) or _refuse_mismatch(url, _URL):
            yield ("catalog",), reason
    if is_sql and (catalog is not None or not warehouse.startswith("s3://")):
        url = f"sqlite:///{warehouse}/catalog.db" if catalog is None else str(catalog)
        if reason := _refuse_sqlite(url, warehouse):
            yield ("warehouse" if catalog is None else "catalog",), reason
    properties = settings.get("properties") or {}
    if not isinstance(properties, Mapping):
        yield ("properties",), "the properties of a catalog are a map of names to values"
        return
    for name, value in properties.items():
        if reason := refuse_property(str(name), value, REST_PROPERTIES):
            yield ("properties", str(name)), reason


def refuse_property(name: str, value: Any, allowed_patterns: Mapping[str, str]) -> str | None:
    """Why a property may not reach pyiceberg; None: it may.

    Args:
        name: of the property.
        value: text, or the reference of a secret, whose content is not judged.
        allowed_patterns: name to the form of the value.
    """
    pattern = allowed_patterns.get(name)
    if pattern is None:
        return f"the property {name!r} of a catalog is not allowed; allowed are {', '.join(sorted(allowed_patterns))}"
    if not isinstance(value, str):
        return None
    reason = _refuse_text(value) or _refuse_mismatch(value, pattern)
    return None if reason is None else f"the value of the property {name} is not allowed: {reason}"


def refuse_secret_property(name: str, value: str) -> str | None:
    """Why the content of a secret may not be the value of an allowed property; None: it may."""
    reason = _refuse_mismatch(value, REST_PROPERTIES[name])
    return None if reason is None else f"the secret of the property {name} is not allowed: {reason}"


def sqlite_file(settings: Mapping[str, Any]) -> Path | None:
    """The file of an allowed SQL catalog, links resolved; None: it is a REST catalog."""
    catalog = settings.get("catalog") or f"sqlite:///{settings['warehouse']}/catalog.db"
    match = _SQLITE.fullmatch(str(catalog))
    return None if match is None else resolved_path(match[1])


def _refuse_sqlite(url: str, warehouse: str) -> str | None:
    match = _SQLITE.fullmatch(url)
    if match is None:
        return "a SQL catalog is `sqlite:////FOLDER/FILE`: an absolute path without driver, host, `?` and `#`"
    if warehouse.startswith("s3://"):
        return "a SQL catalog is a file in the warehouse folder; an S3 warehouse needs a REST catalog"
    file, folder = resolved_path(match[1]), resolved_path(warehouse)
    if file == folder or not file.is_relative_to(folder):
        return f"the SQL catalog {match[1]} is not in the warehouse folder {warehouse}"
    return None  # the limits on warehouses hold for the folder, and so for what is in it


def _refuse_text(value: str) -> str | None:
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        return "it has control characters"
    if "${" in value or "file:" in value.lower():
        return "it has `${` or `file:`"
    return None


def _refuse_mismatch(value: str, pattern: str) -> str | None:
    return None if re.fullmatch(pattern, value) else "it has not the form of such a value"
