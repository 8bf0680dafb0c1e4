"""Which id tokens prove who somebody is: signature, issuer, audience, times and nonce. Without a provider."""

import base64
import hmac
import json
from typing import Any

import pytest
from joserfc import jwk, jws, jwt

from hifi.control.principals.oidc.id_token import LEEWAY_S, ended_session, verified_claims
from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.person import ProviderSession

NOW_S = 1_800_000_000
ISSUER, CLIENT, NONCE = "https://id.example", "hifi", "nonce"
KEYS: dict[str, Any] = {
    "RS256": jwk.RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"}),
    "ES256": jwk.ECKey.generate_key("P-256", {"kid": "ec"}),
    "Ed25519": jwk.OKPKey.generate_key("Ed25519", {"kid": "ed", "use": "sig"}),
}
STRANGER = jwk.RSAKey.generate_key(2048, {"kid": "rsa"})
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": CLIENT,
    "sub": "ann",
    "nonce": NONCE,
    "iat": NOW_S - 1,
    "exp": NOW_S + 300,
}
PUBLIC = {"keys": [key.as_dict(private=False) for key in KEYS.values()]}


def signed(claims: dict[str, Any], algorithm: str = "RS256", key: Any = None, **header: Any) -> str:
    key = key or KEYS[algorithm]
    return jwt.encode({"alg": algorithm, "kid": key.kid, **header}, claims, key, algorithms=[algorithm])


def check(token: str, keys: Any = None, now_s: int = NOW_S) -> dict[str, Any]:
    return verified_claims(token, PUBLIC if keys is None else keys, ISSUER, CLIENT, NONCE, now_s)


def token_segment(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_with_the_signature_of_the_provider_is_valid(algorithm: str) -> None:
    assert check(signed(CLAIMS, algorithm)) == CLAIMS


@pytest.mark.parametrize(
    "changed_claims",
    [
        *({"iss": issuer} for issuer in ("https://evil.example", ISSUER + "/", "", None, [ISSUER], 1)),
        *({"aud": audience} for audience in ("other", ["other"], [], "", None, 1, "HIFI")),
        *({"nonce": nonce} for nonce in ("other", "", None, 1, [NONCE])),
        *({"exp": time} for time in (NOW_S - LEEWAY_S, NOW_S - 3600, 0, None, "later", True, ["later"])),
        *({"iat": time} for time in (NOW_S + LEEWAY_S + 1, NOW_S + 3600, None, "now")),
        {"nbf": NOW_S + LEEWAY_S + 1},
        *({"sub": subject} for subject in (None, "", 1)),
        {"azp": "other"},
        {"aud": [CLIENT, "other"]},
        {"aud": [CLIENT, "other"], "azp": "other"},
    ],
    ids=repr,
)
def test_a_token_with_another_claim_is_refused(changed_claims: dict[str, Any]) -> None:
    with pytest.raises(SignInRefused):
        check(signed(CLAIMS | changed_claims))


@pytest.mark.parametrize("name", CLAIMS)
def test_a_token_without_a_claim_is_refused(name: str) -> None:
    with pytest.raises(SignInRefused):
        check(signed({claim: value for claim, value in CLAIMS.items() if claim != name}))


@pytest.mark.parametrize(
    "changed_claims",
    [
        {"exp": NOW_S - LEEWAY_S + 1},
        {"iat": NOW_S + LEEWAY_S},
        {"aud": [CLIENT]},
        {"aud": [CLIENT, "other"], "azp": CLIENT},
        {"azp": CLIENT},
        {"sub": "ü" * 100, "more": {"deep": [1]}},
    ],
    ids=repr,
)
def test_what_is_within_the_leeway_or_for_several_audiences_is_valid(changed_claims: dict[str, Any]) -> None:
    assert check(signed(CLAIMS | changed_claims)) == CLAIMS | changed_claims


def test_a_wrong_clock_is_named() -> None:
    for hours in (-1, 1):
        with pytest.raises(SignInRefused, match="clock"):
            check(signed(CLAIMS), now_s=NOW_S + hours * 3600)


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_signature_by_another_key_is_refused(algorithm: str) -> None:
    token = signed(CLAIMS, algorithm)
    keys = {"keys": [key for key in PUBLIC["keys"] if key["kid"] != KEYS[algorithm].kid]}
    for key_set in (keys, {"keys": [STRANGER.as_dict(private=False)]}):
        with pytest.raises(SignInRefused):
            check(token, key_set)
    with pytest.raises(SignInRefused):
        check(signed(CLAIMS, "RS256", STRANGER))


def test_each_changed_part_of_a_token_is_refused() -> None:
    header, body, signature = signed(CLAIMS).split(".")
    forged = token_segment(CLAIMS | {"sub": "root"})
    for token in (
        f"{header}.{forged}.{signature}",
        f"{header}.{body}.{signature[:-8]}AAAAAAAA",
        f"{header}.{body}.",
        f"{header}.{body}",
        *("", ".", "..", "...", "a.b.c", "x" * 10_000, f"{header}.{body}.{signature}.{signature}", "ü.ü.ü"),
        f"{token_segment({'alg': 'none'})}.{body}.",
        f"{token_segment({'alg': 'none', 'kid': 'rsa'})}.{body}.{signature}",
        f"{token_segment({'kid': 'rsa'})}.{body}.{signature}",
        f"{token_segment({'alg': 'RS256', 'kid': 'rsa', 'crit': ['x'], 'x': 1})}.{body}.{signature}",
        f"{token_segment([])}.{body}.{signature}",
    ):
        with pytest.raises(SignInRefused):
            check(token)


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b"", b"\xff", b'{"iss":'])
def test_a_signed_text_that_is_no_object_is_refused(content: bytes) -> None:
    token = jws.serialize_compact({"alg": "RS256", "kid": "rsa"}, content, KEYS["RS256"])
    with pytest.raises(SignInRefused):
        check(token)


def test_a_public_key_is_no_secret_of_a_signature() -> None:
    for secret in (KEYS["RS256"].as_pem(private=False), json.dumps(PUBLIC["keys"][0]).encode()):
        signed_part = f"{token_segment({'alg': 'HS256', 'kid': 'rsa'})}.{token_segment(CLAIMS)}"
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signed_part.encode(), "sha256"))
        token = f"{signed_part}.{signature.rstrip(b'=').decode()}"
        shared_key = {"kty": "oct", "kid": "rsa", "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode()}
        for keys in (PUBLIC, {"keys": [shared_key]}, {"keys": [shared_key, *PUBLIC["keys"]]}):
            with pytest.raises(SignInRefused):
                check(token, keys)


def test_a_key_in_the_token_is_not_used() -> None:
    public = STRANGER.as_dict(private=False)
    for header in ({"jwk": public}, {"jku": "https://evil.example/keys"}):
        with pytest.raises(SignInRefused):
            check(signed(CLAIMS, "RS256", STRANGER, **header))


@pytest.mark.parametrize(
    "keys", [[], [{}], [{"kty": "RSA"}], [{"kty": "oct", "k": "AA", "kid": "rsa"}], ["rsa"], [None], [1]]
)
def test_keys_that_are_none_are_refused(keys: list[Any]) -> None:
    with pytest.raises(SignInRefused):
        check(signed(CLAIMS), {"keys": keys})


def test_unknown_keys_beside_the_right_one_and_keys_for_encryption_are_left_out() -> None:
    strange = [{"kty": "AKP", "kid": "new"}, {"kty": "EC", "crv": "none", "kid": "odd"}, {"kty": "RSA"}]
    assert check(signed(CLAIMS), {"keys": [*strange, *PUBLIC["keys"]]}) == CLAIMS
    for_encryption = KEYS["RS256"].as_dict(private=False) | {"use": "enc"}
    with pytest.raises(SignInRefused):
        check(signed(CLAIMS), {"keys": [for_encryption]})


EVENT = "http://schemas.openid.net/event/backchannel-logout"
WRONG_EVENTS: tuple[Any, ...] = (None, [], {}, EVENT, {EVENT: True}, {"other": {}})
LOGOUT: dict[str, Any] = {
    "iss": ISSUER,
    "aud": CLIENT,
    "iat": NOW_S - 1,
    "exp": NOW_S + 120,
    "jti": "1",
    "sub": "ann",
    "sid": "s1",
    "events": {EVENT: {}},
}


def ended_session_of(claims: dict[str, Any], **header: Any) -> ProviderSession:
    return ended_session(signed(claims, **header), PUBLIC, ISSUER, CLIENT, NOW_S)


@pytest.mark.parametrize("kind", [{}, {"typ": "JWT"}, {"typ": "logout+jwt"}])
def test_a_logout_token_names_the_person_the_session_or_both(kind: dict[str, str]) -> None:
    assert ended_session_of(LOGOUT, **kind) == ProviderSession("ann", "s1")
    for absent_claim, session in (("sid", ProviderSession("ann", "")), ("sub", ProviderSession("", "s1"))):
        claims = {name: value for name, value in LOGOUT.items() if name != absent_claim}
        assert ended_session_of(claims, **kind) == session


@pytest.mark.parametrize(
    "changed_claims",
    [
        *({"iss": issuer} for issuer in ("https://evil.example", "", None)),
        *({"aud": audience} for audience in ("other", ["other"], None)),
        *({"exp": time} for time in (NOW_S - LEEWAY_S, 0, None)),
        *({"iat": time} for time in (NOW_S + 3600, None)),
        {"jti": None},
        {"nonce": NONCE},
        *({"events": events} for events in WRONG_EVENTS),
        {"sub": "", "sid": ""},
        {"sub": 1},
        {"sid": ["s1"]},
    ],
    ids=repr,
)
def test_a_logout_token_with_another_claim_is_refused(changed_claims: dict[str, Any]) -> None:
    with pytest.raises(SignInRefused):
        ended_session_of(LOGOUT | changed_claims)


def test_a_logout_token_of_a_stranger_or_of_another_type_is_refused_and_so_is_an_id_token() -> None:
    for token in (
        signed(LOGOUT, key=STRANGER),
        signed(LOGOUT, typ="at+jwt"),
        signed(CLAIMS),
        f"{token_segment({'alg': 'none'})}.{token_segment(LOGOUT)}.",
        "",
    ):
        with pytest.raises(SignInRefused):
            ended_session(token, PUBLIC, ISSUER, CLIENT, NOW_S)
    with pytest.raises(SignInRefused):
        check(signed(LOGOUT | {"nonce": NONCE}, typ="logout+jwt"), now_s=NOW_S + 3600)


@pytest.mark.parametrize(
    ("own_session", "ended_session", "is_ended"),
    [
        (("ann", "s1"), ("ann", "s1"), True),
        (("ann", "s1"), ("", "s1"), True),
        (("ann", "s1"), ("ann", ""), True),
        (("ann", ""), ("ann", "s1"), True),
        (("ann", "s2"), ("ann", "s1"), False),
        (("bob", "s1"), ("ann", "s1"), False),
        (("bob", "s2"), ("ann", ""), False),
        (("ann", ""), ("", "s1"), False),
    ],
)
def test_a_session_ends_with_its_own_at_the_provider_or_with_all_of_the_person(
    own_session: tuple[str, str], ended_session: tuple[str, str], *, is_ended: bool
) -> None:
    assert ProviderSession(*own_session).ends_with(ProviderSession(*ended_session)) == is_ended
