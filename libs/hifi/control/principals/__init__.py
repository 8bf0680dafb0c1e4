"""Principals of observe and manage: roles, sessions, sign-in, and the audit."""
