"""Releases as tags of images: the image of a release, and the release of an image. Pure."""

import re
from typing import Final

from hifi.control.releases.desired_release import INSTALLED
from hifi.runtime.errors import Misconfigured

_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


def split_image(image: str) -> tuple[str, str]:
    """Repository and tag of an image: `registry:5000/hifi-egest:1.3` is `registry:5000/hifi-egest` and `1.3`."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


def image_of(release: str, image: str, installed_tag: str) -> str:
    """The image of a service in a release.

    Args:
        release: a tag, or `installed`.
        image: of the same service in any release.
        installed_tag: of the release `installed`.

    Raises:
        Misconfigured: the release is no tag.
    """
    tag = installed_tag if release == INSTALLED else release
    if not _TAG.fullmatch(tag):
        raise Misconfigured(f"{release} is no tag of an image")
    return f"{split_image(image)[0]}:{tag}"


def release_of(image: str, named_release: str, installed_tag: str) -> str:
    """The release that an image belongs to, as an actor names it.

    Args:
        image: that runs.
        named_release: what the actor called it who chose the image, if it is still that one; empty: nobody chose it.
        installed_tag: of the release `installed`.
    """
    _, tag = split_image(image)
    if named_release and tag == (installed_tag if named_release == INSTALLED else named_release):
        return named_release
    return INSTALLED if tag == installed_tag else tag
