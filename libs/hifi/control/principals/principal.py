"""Principals: who may do what in observe and manage, and the tokens by which they are known."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Final

import orjson
from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader

_PREFIX: Final = "hifi_"
"""Lets scanners of repositories recognize a token."""
_TOKEN_BYTES: Final = 32
PERSON: Final = "oidc:"
"""With it begin the names of people whom an OpenID Connect provider signs in, and no others."""


Moment = Annotated[int, Field(ge=0, lt=2**53)]
"""Microseconds since 1970 UTC, as every JSON parser reads them."""


class Role(StrEnum):
    """Rights of a principal; each role has those of the ones before, too."""

    VIEWER = "viewer"
    """Read everything in its scope but the data of events."""
    DATA_VIEWER = "data-viewer"
    """Read the data of dead letters, each time with an entry in the audit."""
    OPERATOR = "operator"
    """Replay dead letters, silence alarms, pause and resume pipes; pause, resume, abort and force rollouts."""
    ADMIN = "admin"
    """Check, declare, roll back and delete pipes."""

    def includes(self, role: "Role") -> bool:
        """Whether this role may do what another one may."""
        order = list(Role)
        return order.index(self) >= order.index(role)


class PrincipalJson(TypedDict):
    """A principal as JSON."""

    name: str
    role: Role
    pipes: Annotated[list[str], Field(description="Empty: the whole stream.")]
    expires_us: int | None
    author: str
    at_us: int


class ListedPrincipalJson(PrincipalJson):
    """A principal in a list."""

    last_used_us: Annotated[int | None, Field(description="Last use of its token, to a minute.")]


@dataclass(frozen=True, slots=True)
class Principal:
    """A person or a program that uses observe or manage.

    Attributes:
        name: in declarations and in the audit.
        role: what it may do.
        pipes: names of the pipes to which the role is limited, sorted; empty: the whole stream.
        token_sha256: hash of its token, hexadecimal. The token itself is 32 random bytes and is stored nowhere.
        expires_us: when the token expires, microseconds since 1970 UTC; None: never.
        author: who created it.
        at_us: when, microseconds since 1970 UTC.
    """

    name: str
    role: Role
    pipes: tuple[str, ...]
    token_sha256: str
    expires_us: Moment | None
    author: str
    at_us: Moment

    def record(self) -> Record:
        """The record for the topic `principals`."""
        return Record(self.name.encode(), orjson.dumps(asdict(self)), [])

    @property
    def sees_all(self) -> bool:
        """Whether its role holds for the whole stream."""
        return not self.pipes

    def sees(self, pipe: str) -> bool:
        """Whether a pipe is in the scope of its role."""
        return not self.pipes or pipe in self.pipes

    def json(self) -> PrincipalJson:
        """JSON for people, without the hash of the token."""
        return {
            "name": self.name,
            "role": self.role,
            "pipes": list(self.pipes),
            "expires_us": self.expires_us,
            "author": self.author,
            "at_us": self.at_us,
        }


_RECORD: Final = TypeAdapter(Principal)


class RevokedPersonJson(TypedDict):
    """A person who may not sign in, as JSON."""

    name: str
    author: str
    at_us: int


@dataclass(frozen=True, slots=True)
class RevokedPerson:
    """Somebody whose sessions have ended and who may not sign in, whatever the provider says.

    Attributes:
        name: begins with `oidc:`.
        author: who revoked the person; empty: the record cannot be read.
        at_us: when, microseconds since 1970 UTC.
    """

    name: str
    author: str
    at_us: int

    def record(self) -> Record:
        """The record for the topic `principals`."""
        return Record(self.name.encode(), orjson.dumps(asdict(self)), [])

    def json(self) -> RevokedPersonJson:
        """JSON for people."""
        return {"name": self.name, "author": self.author, "at_us": self.at_us}


_PERSON: Final = RecordBodyReader(RevokedPerson, "a revoked person", required=["author", "at_us"])


class Principals:
    """The principals that exist, by name and by token, and revoked people. Filled from the topic `principals`."""

    def __init__(self) -> None:
        self._by_name: dict[str, Principal] = {}
        self._by_hash: dict[str, Principal] = {}
        self.revoked: dict[str, RevokedPerson] = {}
        """Name to person."""
        self.person_offsets: dict[str, int] = {}
        """Name of a person who was revoked or restored to the offset of the newest record about it."""

    @property
    def by_name(self) -> Mapping[str, Principal]:
        """Name to principal, of all that are not revoked."""
        return self._by_name

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record. One that cannot be read revokes the principal of its key.

        Raises:
            ValueError: it is not the record of a principal.
        """
        name = (key or b"").decode("utf-8", "replace")
        previous_principal = self._by_name.pop(name, None)
        if previous_principal is not None:
            self._by_hash.pop(previous_principal.token_sha256, None)
        if name.startswith(PERSON):
            self.person_offsets[name] = offset
        if value is None:
            self.revoked.pop(name, None)
            return
        if name.startswith(PERSON):
            self._revoke_person(name, value)
            return
        try:
            principal = _RECORD.validate_json(value, strict=True)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first_error["loc"]))
            raise ValueError(f"not the record of a principal: {location}: {first_error['msg']}") from None
        if principal.name != name:
            raise ValueError(
                f"not the record of a principal: its key is {name!r}, its name {principal.name!r}"
            )
        self._by_name[name] = principal
        self._by_hash[principal.token_sha256] = principal

    def _revoke_person(self, name: str, value: bytes) -> None:
        self.revoked[name] = RevokedPerson(name, "", 0)
        self.revoked[name] = _PERSON.of_value(value, name=name)

    def of_token(self, token: str, now_us: int) -> Principal | None:
        """The principal of a token; None: there is none, or the token has expired."""
        return self.of_hash(token_sha256(token), now_us)

    def of_hash(self, sha256: str, now_us: int) -> Principal | None:
        """The principal of the token with this hash; None: there is none, or the token has expired."""
        principal = self._by_hash.get(sha256)
        if principal is None or (principal.expires_us is not None and principal.expires_us <= now_us):
            return None
        return principal


def new_token() -> str:
    """A token that nobody can guess."""
    return _PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)


def token_sha256(token: str) -> str:
    """The hash of a token, which is stored. A plain hash suffices, since tokens are random."""
    return hashlib.sha256(token.encode()).hexdigest()


def revocation(name: str) -> Record:
    """The record that revokes a principal."""
    return Record(name.encode(), None, [])
