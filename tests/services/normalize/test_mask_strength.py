"""When a revision cannot be used, one that masks less is not used in its place."""

from typing import Any

import pytest

from hifi.pipe.model import Pipe
from hifi.pipe.revision import PipeRevision
from hifi_normalize.compiled_pipes import _masks_as_much


def _revision(mask: dict[str, Any]) -> PipeRevision:
    declaration = {
        "pipe": "people",
        "source": {"keys": [{"env": "KEY"}]},
        "normalize": {"mask": mask},
        "destinations": [{"name": "d", "url": "https://shop.example/"}],
    }
    return PipeRevision(Pipe.model_validate(declaration), 1)


HASH, OTHER_HASH = {"hash": {"env": "A"}}, {"hash": {"env": "B"}}


@pytest.mark.parametrize(
    ("kept_mask", "published_mask", "usable"),
    [
        ({"a": "drop"}, {"a": "drop"}, True),
        ({"a": "drop"}, {"a": "redact"}, True),
        ({"a": "drop"}, {"a": HASH}, True),
        ({"a": "redact"}, {"a": HASH}, True),
        ({"a": HASH}, {"a": HASH}, True),
        ({"a": "drop", "b": HASH}, {"a": "drop"}, True),
        ({"a": HASH}, {"a": "drop"}, False),
        ({"a": HASH}, {"a": "redact"}, False),
        ({"a": HASH}, {"a": OTHER_HASH}, False),
        ({"a": "redact"}, {"a": "drop"}, False),
        ({"a": "drop"}, {"a": "drop", "b": "redact"}, False),
        ({}, {"a": HASH}, False),
    ],
)
def test_a_weaker_mask_is_not_kept_in_use(
    kept_mask: dict[str, Any], published_mask: dict[str, Any], usable: bool
) -> None:
    assert _masks_as_much(_revision(kept_mask), _revision(published_mask)) == usable
