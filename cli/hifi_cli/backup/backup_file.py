"""The file of a backup: lines of JSON, the first with what was backed up, the last with count and checksum. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Misconfigured
from hifi_cli.backup.state import ALL, State, StateRecord

FORMAT: Final = 1


def encode(state: State) -> bytes:
    """The content of the file."""
    header = {
        "hifi_backup": FORMAT,
        "stream": state.stream,
        "control": state.control,
        "partitions": state.partitions,
        "at": datetime.fromtimestamp(state.at_us / MICROSECONDS, UTC).isoformat(timespec="microseconds"),
        "counts": state.counts(),
    }
    body = _lines([header, *(asdict(record) for record in state.records)])
    return body + _lines([{"records": len(state.records), "sha256": hashlib.sha256(body).hexdigest()}])


def decode(content: bytes, name: str) -> State:
    """Read the content of a file.

    Args:
        content: of the file.
        name: of the file, for errors.

    Raises:
        Misconfigured: it is no backup, was cut or changed, or has a format that this release does not know.
    """
    lines = content.splitlines(keepends=True)
    try:
        header: Mapping[str, Any] = orjson.loads(lines[0])
        version = header["hifi_backup"]
    except (IndexError, KeyError, TypeError, ValueError):
        raise Misconfigured(
            f"{name} is not a backup of hifi: its first line has no `hifi_backup`. `hifi backup FILE` makes one"
        ) from None
    if version != FORMAT:
        raise Misconfigured(
            f"{name} has format {version} and this release reads format {FORMAT}: restore it with the release that "
            "made it"
        )
    _check_complete(lines, name)
    try:
        records = [StateRecord(**orjson.loads(line)) for line in lines[1:-1]]
        unknown = sorted({record.topic for record in records} - set(ALL))
        if unknown:
            raise ValueError(f"it has records of {', '.join(unknown)}, which this release does not know")
        backup_time = datetime.fromisoformat(header["at"])
        return State(
            header["stream"],
            header["control"],
            int(header["partitions"]),
            int(backup_time.timestamp() * MICROSECONDS),
            records,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Misconfigured(f"{name} cannot be read: {error}. Use another backup") from None


def _check_complete(lines: list[bytes], name: str) -> None:
    """Refuse a file that was cut or changed, before anything of it is believed."""
    try:
        last_line = orjson.loads(lines[-1])
        count, checksum = last_line["records"], last_line["sha256"]
    except (KeyError, TypeError, ValueError):
        raise Misconfigured(
            f"{name} is incomplete: its last line has no checksum. Use another backup"
        ) from None
    if count != len(lines) - 2 or checksum != hashlib.sha256(b"".join(lines[:-1])).hexdigest():
        raise Misconfigured(
            f"{name} was changed or damaged: its content does not have the checksum of its last line. Use another "
            "backup"
        )


def _lines(values: Iterable[Any]) -> bytes:
    return b"".join(orjson.dumps(value) + b"\n" for value in values)
