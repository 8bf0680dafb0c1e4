"""Which files of a step can be rolled forward."""

from dataclasses import replace

import pytest

from hifi_state.fold.progress import Progress
from hifi_state.step_turn import _is_usable

LOG, OTHER_LOG = "11" * 16, "22" * 16
PROGRESS = Progress("declared", "flights", 800, {0: 900}, enriched_id=LOG)
BASE = {0: 700}


@pytest.mark.parametrize("number", [500, 800])
def test_a_file_of_a_log_that_was_deleted_is_computed_anew_however_far_it_has_read(number: int) -> None:
    file_progress = replace(PROGRESS, number=number, offsets={0: 1_000_000})
    assert _is_usable(file_progress, PROGRESS, BASE)
    assert not _is_usable(replace(file_progress, enriched_id=OTHER_LOG), PROGRESS, BASE)


def test_a_file_of_a_release_that_kept_no_id_is_used_as_it_is_and_not_rolled_forward() -> None:
    file_progress = replace(PROGRESS, enriched_id="")
    assert _is_usable(file_progress, PROGRESS, BASE)
    assert not _is_usable(replace(file_progress, number=799, offsets={0: 850}), PROGRESS, BASE)


def test_a_file_on_brokers_that_tell_no_id_is_rolled_forward() -> None:
    progress = replace(PROGRESS, enriched_id="")
    assert _is_usable(replace(progress, number=799, offsets={0: 850}), progress, BASE)


@pytest.mark.parametrize(
    "other",
    [{"step": "other"}, {"number": 801}, {"offsets": {0: 699}}],
    ids=["step", "ahead", "too far behind"],
)
def test_a_file_of_another_declaration_or_place_is_computed_anew(other: dict[str, object]) -> None:
    assert not _is_usable(replace(PROGRESS, **other), PROGRESS, BASE)  # type: ignore[arg-type]
