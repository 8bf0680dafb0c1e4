"""Where in the data that came a field is that normalize passes on. Pure."""

from collections.abc import Iterator

from hifi.pipe.model import MapRule, Normalize


def sent_paths(declared: Normalize, path: str) -> Iterator[str]:
    """The paths in the data as it came whose values only have the masked path when normalize has passed them on."""
    yield path
    if declared.keep == "all":
        return
    for target, source in mapped_paths(declared):
        if f"{path}.".startswith(f"{target}."):
            yield source + path[len(target) :]
        elif target.startswith(f"{path}."):
            yield source


def mapped_paths(declared: Normalize) -> Iterator[tuple[str, str]]:
    """Path that normalize sets, and the path of its value."""
    for target, rule in (declared.fields or {}).items():
        yield target, (rule.from_ or target) if isinstance(rule, MapRule) else rule
