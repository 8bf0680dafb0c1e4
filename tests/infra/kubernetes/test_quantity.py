"""Quantities and durations of Kubernetes."""

import pytest

from hifi_infra.kubernetes.quantity import duration_s, quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("2", 2),
        ("250m", 0.25),
        ("1234567n", 0.001234567),
        ("12u", 0.000012),
        ("128Mi", 134_217_728),
        ("1Gi", 1_073_741_824),
        ("1.5k", 1500),
        ("3M", 3_000_000),
        ("12e6", 12_000_000),
        ("1.5E3", 1500),
        ("2E", 2e18),
        ("1Pi", 2**50),
    ],
)
def test_a_quantity_is_read(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1mi", "one", "1kk"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        quantity(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15s", 15), ("15.123s", 15.123), ("1m0.5s", 60.5), ("2h3s", 7203), ("1h0m0s", 3600)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1s1m", "1.5h", "-3s", "15 s"])
def test_texts_that_are_no_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration of Kubernetes"):
        duration_s(text)
