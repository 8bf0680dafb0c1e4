"""The dead-letter record; reading and replaying dead letters."""
