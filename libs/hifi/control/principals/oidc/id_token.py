"""Checks id tokens as OpenID Connect Core 1.0, section 3.1.3.7 says, by the keys of the provider. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from joserfc import jwk, jwt
from joserfc.errors import ExpiredTokenError, JoseError

from hifi.control.principals.oidc.refusals import SignInRefused

LEEWAY_S: Final = 60
"""How much the clocks of the provider and of this machine may differ."""
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519"),
)
"""Signatures with a public key. Neither `none`, nor those with a secret that the provider shares with its clients."""


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
        claims = jwt.decode(token, _signing_keys(keys), algorithms=ALGORITHMS).claims
        jwt.JWTClaimsRegistry(
            now_s,
            LEEWAY_S,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(claims)
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


def _signing_keys(keys: Mapping[str, Any]) -> jwk.KeySet:
    """The public keys for signatures; those of unknown kinds are left out."""
    usable = []
    for key in keys["keys"]:
        if (
            isinstance(key, dict)
            and key.get("kty") in ("RSA", "EC", "OKP")
            and key.get("use", "sig") == "sig"
        ):
            try:
                usable.append(jwk.import_key(key))
            except (JoseError, ValueError):
                continue
    if not usable:
        raise ValueError("the provider has no key for signatures")
    return jwk.KeySet(usable)
