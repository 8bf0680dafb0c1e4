"""Paths, in the data as it came, of the fields that normalize passes on. Pure."""

from collections.abc import Iterator

from hifi.pipe.mask import composed, covers
from hifi.pipe.model import MapRule, Normalize


def sent_paths(normalize: Normalize, path: str) -> Iterator[str]:
    """The paths in the data as it came whose values only have the masked path when normalize has passed them on."""
    yield path
    if normalize.keep == "all":
        return
    masked_path = composed(path)
    for target_path, source in mapped_paths(normalize):
        target = composed(target_path)
        if covers(target, masked_path):
            yield source + masked_path[len(target) :]
        elif covers(masked_path, target):
            yield source


def mapped_paths(normalize: Normalize) -> Iterator[tuple[str, str]]:
    """Path that normalize sets, and the path of its value."""
    for target, rule in (normalize.fields or {}).items():
        yield target, (rule.from_ or target) if isinstance(rule, MapRule) else rule
