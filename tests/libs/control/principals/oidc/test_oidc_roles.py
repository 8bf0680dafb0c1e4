"""Roles from the groups of a person, names, and the settings of sign-in. Without a provider."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hifi.control.principals.oidc.roles import claim, groups, person_name, principals_of
from hifi.control.principals.oidc.settings import OidcSettings, RoleGrant, is_loopback
from hifi.control.principals.person import fitting
from hifi.control.principals.principal import Principal, Principals, RevokedPerson, Role
from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import load

COMPLETE = {"ISSUER": "https://id.example", "CLIENT_ID": "hifi", "ROLES": "viewer=*"}


def settings(**values: str) -> OidcSettings:
    with patch.dict(os.environ, {f"HIFI_OIDC_{name}": value for name, value in values.items()}):
        return load(OidcSettings)


def roles_of_groups(of_groups: set[str], roles: str) -> set[tuple[str, tuple[str, ...]]]:
    grants = settings(**COMPLETE | {"ROLES": roles}).roles
    principals = principals_of("oidc:ann", of_groups, grants, author="a", at_us=1, expires_us=2)
    assert all(principal.token_sha256 == "" for principal in principals)
    return {(principal.role.value, principal.pipes) for principal in principals}


@pytest.mark.parametrize(
    ("of_groups", "roles", "expected"),
    [
        (set(), "admin=admins", set()),
        ({"admins"}, "admin=admins", {("admin", ())}),
        ({"Admins"}, "admin=admins", set()),
        ({"admins", "x"}, "viewer=*,admin=admins", {("viewer", ()), ("admin", ())}),
        (set(), "viewer=*", {("viewer", ())}),
        ({"*"}, "admin=admins", set()),
        ({"a", "b"}, "operator/x=a,operator/y=b,operator/z=c", {("operator", ("x", "y"))}),
        ({"a", "b"}, "operator/x=a,operator=b", {("operator", ())}),
        ({"/eu/ops"}, "data-viewer/x=/eu/ops", {("data-viewer", ("x",))}),
        ({"k=v"}, "viewer=k=v", {("viewer", ())}),
        ({"two words"}, " viewer=two words , ", {("viewer", ())}),
    ],
)
def test_groups_give_roles(
    of_groups: set[str], roles: str, expected: set[tuple[str, tuple[str, ...]]]
) -> None:
    assert roles_of_groups(of_groups, roles) == expected


@pytest.mark.parametrize(
    "roles", ["root=a", "admin", "admin=", "=a", "admin/=a", "Admin=a", "viewer=*,x", "admin a"]
)
def test_a_role_that_is_none_is_refused_by_the_name_of_its_variable(roles: str) -> None:
    with pytest.raises(Misconfigured, match="HIFI_OIDC_ROLES"):
        settings(**COMPLETE | {"ROLES": roles})


@pytest.mark.parametrize(
    ("values", "variable"),
    [
        ({"CLIENT_ID": ""}, "HIFI_OIDC_CLIENT_ID"),
        ({"ROLES": ""}, "HIFI_OIDC_ROLES"),
        ({"SCOPES": "profile"}, "HIFI_OIDC_SCOPES"),
        ({"SESSION_S": "-1"}, "HIFI_OIDC_SESSION_S"),
        *(
            ({"ISSUER": issuer}, "HIFI_OIDC_ISSUER")
            for issuer in (
                "http://id.example",
                "http://10.0.0.1",
                "id.example",
                "ftp://id.example",
                "https://id.example?x",
                "https://id.example#x",
                "http://127.0.0.1.evil.example",
                "http://localhost.evil.example",
                "http://localhost@evil.example",
            )
        ),
    ],
)
def test_settings_that_are_wrong_or_incomplete_are_refused(values: dict[str, str], variable: str) -> None:
    with pytest.raises(Misconfigured, match=variable):
        settings(**COMPLETE | values)


def test_without_an_issuer_nothing_else_is_needed() -> None:
    assert settings().issuer == ""
    for issuer in (
        "https://id.example/realms/x",
        "http://127.0.0.1:8080",
        "http://[::1]:80",
        "http://localhost",
    ):
        assert settings(**COMPLETE | {"ISSUER": issuer}).issuer == issuer
    assert not is_loopback("https://")


def test_the_secret_is_what_its_file_has_now(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    read_secret = settings(**COMPLETE, CLIENT_SECRET_FILE=str(file)).read_client_secret
    with pytest.raises(Misconfigured, match="HIFI_OIDC_CLIENT_SECRET_FILE"):
        read_secret()
    for text in ("first\n", "second", ""):
        file.write_text(text)
        assert read_secret() == text.strip()
    assert settings(**COMPLETE).read_client_secret() == ""


@pytest.mark.parametrize(
    ("claims", "name", "expected"),
    [
        ({"groups": ["a", "b"]}, "groups", {"a", "b"}),
        ({"groups": "a"}, "groups", {"a"}),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", {"a"}),
        ({"https://example.com/roles": ["a"]}, "https://example.com/roles", {"a"}),
        ({"a.b": ["x"], "a": {"b": ["y"]}}, "a.b", {"x"}),
        ({"groups": ["a", 1, None, ["b"]]}, "groups", {"a"}),
        *(({"groups": value}, "groups", set()) for value in (None, 1, True, {"a": 1}, [None], [[1]])),
        ({}, "groups", set()),
        ({"realm_access": []}, "realm_access.roles", set()),
        ({"realm_access": "roles"}, "realm_access.roles", set()),
    ],
)
def test_groups_are_texts_of_a_claim(claims: dict[str, Any], name: str, expected: set[str]) -> None:
    assert groups(claims, name) == expected


@pytest.mark.parametrize(
    ("claims", "name", "expected"),
    [
        ({"sub": "1"}, "sub", "oidc:1"),
        ({"email": "a@b.example", "email_verified": True}, "email", "oidc:a@b.example"),
        ({"email": "a@b.example"}, "email", "oidc:a@b.example"),
        ({"email": "a@b.example", "email_verified": False}, "email", None),
        ({"user": {"name": "Änne"}}, "user.name", "oidc:Änne"),
        *(
            ({"sub": value}, "sub", None)
            for value in (None, 1, "", "a\nb", "a\x1b[0m", "\u202e", "x" * 201, ["a"])
        ),
        ({}, "sub", None),
    ],
)
def test_a_name_is_a_printable_text_that_is_verified(
    claims: dict[str, Any], name: str, expected: str | None
) -> None:
    assert person_name(claims, name) == expected


def test_a_claim_that_is_not_there_is_none() -> None:
    assert claim({"a": {"b": 1}}, "a.b.c") is None


def principal_with(role: Role, *pipes: str) -> Principal:
    return Principal("oidc:ann", role, pipes, "", None, "", 0)


@pytest.mark.parametrize(
    ("role", "pipe", "expected"),
    [
        (Role.VIEWER, None, Role.VIEWER),
        (Role.VIEWER, "x", Role.OPERATOR),
        (Role.VIEWER, "y", Role.VIEWER),
        (Role.OPERATOR, "x", Role.OPERATOR),
        (Role.OPERATOR, "y", None),
        (Role.OPERATOR, None, Role.OPERATOR),
        (Role.DATA_VIEWER, "x", Role.OPERATOR),
        (Role.ADMIN, "x", None),
        (Role.ADMIN, None, None),
    ],
)
def test_of_several_roles_the_widest_scope_counts_and_for_a_pipe_the_highest(
    role: Role, pipe: str | None, expected: Role | None
) -> None:
    own_roles = [principal_with(Role.VIEWER), principal_with(Role.OPERATOR, "x")]
    for principals in (own_roles, own_roles[::-1]):
        chosen_role = fitting(principals, role, pipe)
        assert (chosen_role and chosen_role.role) == expected


def test_a_revoked_person_stays_so_until_the_record_is_removed_also_if_it_cannot_be_read() -> None:
    principals = Principals()
    principals.take(b"oidc:ann", RevokedPerson("oidc:ann", "root", 7).record().value, 0)
    assert principals.revoked["oidc:ann"] == RevokedPerson("oidc:ann", "root", 7)
    for value in (b"", b"x", b"[]", b"{}", b"null"):
        with pytest.raises(ValueError, match="revoked person"):
            principals.take(b"oidc:bob", value, 0)
        assert "oidc:bob" in principals.revoked
    for name in (b"oidc:ann", b"oidc:bob"):
        principals.take(name, None, 0)
    assert principals.revoked == {}


def test_the_record_of_a_person_gives_no_token_a_role() -> None:
    principals = Principals()
    stolen = Principal("oidc:ann", Role.ADMIN, (), "0" * 64, None, "", 0)
    principals.take(b"oidc:ann", stolen.record().value, 0)
    assert principals.of_hash("0" * 64, 0) is None
    assert "oidc:ann" in principals.revoked


def test_a_grant_is_read_as_it_is_written() -> None:
    assert RoleGrant.read("operator/orders=a/b") == RoleGrant(Role.OPERATOR, "orders", "a/b")
