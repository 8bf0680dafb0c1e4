"""Sign-in with an OpenID Connect provider: authorization code flow with PKCE, and roles from the groups of a person."""
