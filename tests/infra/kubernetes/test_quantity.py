"""Quantities of Kubernetes."""

import pytest

from hifi_infra.kubernetes.quantity import quantity


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
    ],
)
def test_a_quantity_is_read(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "m", "1 Gi", "1gi", "1mi", "one", "1kk"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        quantity(text)
