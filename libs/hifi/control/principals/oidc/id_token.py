"""Checks tokens by the keys of the provider. Pure.

Id tokens as OpenID Connect Core 1.0, section 3.1.3.7 says, logout tokens as OpenID Connect Back-Channel Logout 1.0,
section 2.6.
"""

from collections.abc import Mapping
from typing import Any, Final

from joserfc import jwk, jwt
from joserfc.errors import ExpiredTokenError, JoseError

from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.person import ProviderSession

LEEWAY_S: Final = 60
"""How much the clocks of the provider and of this machine may differ."""
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Signatures with a public key. Neither `none`, nor those with a secret that the provider shares with its clients."""

_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_LOGOUT_TYPES: Final = frozenset({"jwt", "logout+jwt", "application/logout+jwt"})


def verified_claims(
    token: str, keys: Mapping[str, Any], issuer: str, client_id: str, nonce: str, now_s: int
) -> dict[str, Any]:
    """The claims of an id token.

    Args:
        token: as the provider's token endpoint returned it.
        keys: JSON Web Key Set of the provider.
        issuer: of the provider.
        client_id: of this client.
        nonce: of the request to sign in.
        now_s: seconds since 1970 UTC.

    Raises:
        SignInRefused: it is not valid.
    """
    try:
        expected_claims = {
            "iss": issuer,
            "aud": client_id,
            "sub": None,
            "exp": None,
            "iat": None,
            "nonce": nonce,
        }
        claims = _validated(token, keys, now_s, expected_claims).claims
    except ExpiredTokenError:
        raise SignInRefused(
            "the id token has expired by the clock of this machine; compare it with the provider's"
        ) from None
    except (JoseError, ValueError, TypeError, KeyError) as error:
        hint = (
            "; compare the clocks"
            if any(name in str(error) for name in ("iat", "yet valid", "future"))
            else ""
        )
        raise SignInRefused(f"the id token is not valid: {error}{hint}") from None
    if claims["nonce"] != nonce:  # a list that has it passes the check above
        raise SignInRefused("the id token was made for another sign-in")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if claims.get("azp", client_id) != client_id or (len(audiences) > 1 and "azp" not in claims):
        raise SignInRefused("the id token was made for another client")
    return claims


def ended_session(
    token: str, keys: Mapping[str, Any], issuer: str, client_id: str, now_s: int
) -> ProviderSession:
    """The session at the provider that a logout token ends.

    Args:
        token: as somebody sent it.
        keys: JSON Web Key Set of the provider.
        issuer: of the provider.
        client_id: of this client.
        now_s: seconds since 1970 UTC.

    Raises:
        SignInRefused: it is not valid.
    """
    try:
        expected_claims = {"iss": issuer, "aud": client_id, "exp": None, "iat": None, "jti": None}
        decoded_token = _validated(token, keys, now_s, expected_claims)
        claims = decoded_token.claims
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise SignInRefused(f"the logout token is not valid: {error}") from None
    if str(decoded_token.header.get("typ", "JWT")).lower() not in _LOGOUT_TYPES:
        raise SignInRefused("the token is of another type than a logout token")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(_LOGOUT_EVENT), dict):
        raise SignInRefused("the token is not about the end of a session")
    if "nonce" in claims:
        raise SignInRefused("the token has a nonce, as id tokens have and logout tokens do not")
    subject, session_id = claims.get("sub", ""), claims.get("sid", "")
    if not isinstance(subject, str) or not isinstance(session_id, str) or not (subject or session_id):
        raise SignInRefused("the logout token names neither a person nor a session")
    return ProviderSession(subject, session_id)


def _validated(
    token: str, keys: Mapping[str, Any], now_s: int, expected_claims: Mapping[str, str | None]
) -> jwt.Token:
    """Check signature, times and claims.

    Args:
        token: as somebody sent it.
        keys: JSON Web Key Set of the provider.
        now_s: seconds since 1970 UTC.
        expected_claims: claims that it must have, and their values; None: any.

    Raises:
        JoseError, ValueError, TypeError, KeyError: it is not valid.
    """
    decoded_token = jwt.decode(token, _signing_keys(keys), algorithms=ALGORITHMS)
    options: dict[str, jwt.ClaimsOption] = {
        name: {"essential": True} if value is None else {"essential": True, "value": value}
        for name, value in expected_claims.items()
    }
    jwt.JWTClaimsRegistry(now_s, LEEWAY_S, **options).validate(decoded_token.claims)
    return decoded_token


def _signing_keys(keys: Mapping[str, Any]) -> jwk.KeySet:
    """The public keys for signatures; those of unknown kinds are left out."""
    signing_keys = []
    for key in keys["keys"]:
        if (
            isinstance(key, dict)
            and key.get("kty") in ("RSA", "EC", "OKP")
            and key.get("use", "sig") == "sig"
        ):
            try:
                signing_keys.append(jwk.import_key(key))
            except (JoseError, ValueError):
                continue
    if not signing_keys:
        raise ValueError("the provider has no key for signatures")
    return jwk.KeySet(signing_keys)
