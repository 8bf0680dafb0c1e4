"""The image of a release, and the release of an image."""

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_infra.mesh.image_release import image_of, release_of, split_image


@pytest.mark.parametrize(
    ("image", "name_and_tag"),
    [
        ("hifi-egest:1.3", ("hifi-egest", "1.3")),
        ("hifi-egest", ("hifi-egest", "latest")),
        ("registry:5000/hifi-egest", ("registry:5000/hifi-egest", "latest")),
    ],
)
def test_repository_and_tag(image: str, name_and_tag: tuple[str, str]) -> None:
    assert split_image(image) == name_and_tag


def test_the_image_of_a_release_has_its_tag() -> None:
    assert image_of("1.3", "registry:5000/hifi-egest:1.2", "1.2") == "registry:5000/hifi-egest:1.3"
    assert image_of("installed", "registry:5000/hifi-egest:1.3", "1.2") == "registry:5000/hifi-egest:1.2"


@pytest.mark.parametrize("release", ["", "a b", "../etc", "-1", "1" * 129])
def test_a_release_that_is_no_tag_is_refused(release: str) -> None:
    with pytest.raises(Misconfigured, match="is no tag of an image"):
        image_of(release, "hifi-egest:1.2", "1.2")


@pytest.mark.parametrize(
    ("tag", "named_release", "release"),
    [
        ("1.2", "", "installed"),
        ("1.3", "", "1.3"),
        ("1.2", "1.2", "1.2"),
        ("1.2", "installed", "installed"),
        ("1.3", "installed", "1.3"),
        ("1.2", "1.3", "installed"),
    ],
)
def test_the_name_that_an_actor_gave_a_release_counts_while_its_image_runs(
    tag: str, named_release: str, release: str
) -> None:
    assert release_of(f"hifi-egest:{tag}", named_release, "1.2") == release
