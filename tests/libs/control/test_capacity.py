"""The declared rates of pipes beside the rating of the mesh."""

import pytest

from hifi.control.capacity import MeshRating, over_capacity, overload
from hifi.pipe.model import Pipe

RATING = MeshRating(1000, 0.8)


def pipe(name: str, per_s: int | None) -> Pipe:
    quota = {} if per_s is None else {"quota": {"events": f"{per_s}/s"}}
    destinations = [{"name": "crm", "url": "http://127.0.0.1:9/"}]
    body = {"pipe": name, "source": {"keys": [{"env": "KEY"}], **quota}, "destinations": destinations}
    return Pipe.model_validate(body)


def test_a_pipe_that_the_mesh_does_not_carry_is_named_with_the_numbers_and_what_to_do() -> None:
    published = {"a": pipe("a", 500), "b": pipe("b", None)}
    assert over_capacity(pipe("new", 300), published, RATING) == ""
    reason = over_capacity(pipe("new", 301), published, RATING)
    assert "no capacity for 301 events/s of new (0 before)" in reason
    assert "the quotas of 2 pipes are 801 events/s together" in reason
    assert "800 events/s: 80% of its rating of 1,000 events/s" in reason
    assert "`source.quota.events`" in reason
    assert "`hifi rollout force new`" in reason


def test_a_pipe_counts_once_and_one_that_declares_no_more_than_before_is_carried() -> None:
    published = {"a": pipe("a", 700)}
    assert over_capacity(pipe("a", 800), published, RATING) == ""
    assert over_capacity(pipe("a", 801), published, RATING)
    assert over_capacity(pipe("a", 699), published, MeshRating(100)) == ""


@pytest.mark.parametrize(("rating", "per_s"), [(MeshRating(0), 10_000), (MeshRating(1000, 1.0), 1000)])
def test_nothing_is_refused_without_a_rating_or_up_to_its_share(rating: MeshRating, per_s: int) -> None:
    assert overload([pipe("a", per_s)], rating) == ""
    assert overload([pipe("a", None)], RATING) == ""
