"""Helpers of the tests of the Helm chart."""
