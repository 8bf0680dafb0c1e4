"""The refusals of the registry, with Confluent's error codes. The first three digits of a code are the HTTP status."""

from typing import Final

from hifi.runtime.errors import HifiError

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
NO_LEVEL_OF_SUBJECT: Final = 40408
INCOMPATIBLE: Final = 409
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
NOT_IMPORTING: Final = 42205
REFERENCED: Final = 42206
UNAVAILABLE: Final = 503


class RegistryRefusal(HifiError):
    """The registry refuses a request.

    Attributes:
        code: error code.
        message: for the caller.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """HTTP status."""
        return int(str(self.code)[:3])


def subject_not_found(subject: str) -> RegistryRefusal:
    """40401."""
    return RegistryRefusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def version_not_found(version: int | str) -> RegistryRefusal:
    """40402."""
    return RegistryRefusal(VERSION_NOT_FOUND, f"Version {version} not found.")


def schema_not_found(name: str = "Schema") -> RegistryRefusal:
    """40403."""
    return RegistryRefusal(SCHEMA_NOT_FOUND, f"{name} not found.")
