"""The principals of a person, from the claims of the provider. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from hifi.control.principals.oidc.settings import EVERYBODY, RoleGrant
from hifi.control.principals.principal import PERSON, Principal, Role

_LONGEST_NAME: Final = 200


def claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by a path with dots into objects; None: there is none."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def groups(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The texts of a claim that is a list, or a single text."""
    value = claim(claims, name)
    if isinstance(value, str):
        return frozenset({value})
    return (
        frozenset(text for text in value if isinstance(text, str)) if isinstance(value, list) else frozenset()
    )


def person_name(claims: Mapping[str, Any], name: str) -> str | None:
    """Name of a person; None: the claim is not there or cannot be a name, or it is an address that is not verified."""
    value = claim(claims, name)
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _LONGEST_NAME:
        return None
    if name == "email" and claims.get("email_verified") is False:
        return None
    return PERSON + value


def principals_of(
    name: str,
    of_groups: Iterable[str],
    grants: Sequence[RoleGrant],
    *,
    author: str,
    at_us: int,
    expires_us: int,
) -> tuple[Principal, ...]:
    """The principals that the groups of a person give, one for each role; empty: none.

    Args:
        name: of the person.
        of_groups: groups of the person.
        grants: roles of groups.
        author: the provider.
        at_us: now, microseconds since 1970 UTC.
        expires_us: when the session ends, microseconds since 1970 UTC.
    """
    memberships = {*of_groups, EVERYBODY}
    pipes: dict[Role, set[str | None]] = {}
    for grant in grants:
        if grant.group in memberships:
            pipes.setdefault(grant.role, set()).add(grant.pipe)
    return tuple(
        Principal(name, role, _limits(pipe_names), "", expires_us, author, at_us)
        for role, pipe_names in pipes.items()
    )


def _limits(pipes: Iterable[str | None]) -> tuple[str, ...]:
    names = set(pipes)
    return () if None in names else tuple(sorted(filter(None, names)))
