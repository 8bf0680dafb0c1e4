"""Tables of topics: content, key, partitions and retention as declared, writers and readers as ACLs allow them."""

import inspect
from collections.abc import Sequence
from typing import Final

from hifi.kafka.security.access import ANY, OPERATOR, Access, access, colours_access
from hifi.kafka.topics import DAY_MS, FOREVER_MS, ControlTopics, Tier, Topic, Topics

_STREAM: Final = Topics("S", (Tier("<delay>", 1),))
_CONTROL: Final = ControlTopics("S-control")
_ALL: Final = f"{_STREAM.stream}.{ANY}"
OBSERVE: Final = "observe"
"""It reads every topic of the stream, as the operator does, so both are named only where nobody else reads."""
_HOUR_MS: Final = 3600 * 1000
_COLUMNS: Final = ("Topic", "Content", "Written by", "Read by", "Key", "Partitions", "Retention")


def stream_topics_table() -> str:
    """Describe each topic of a stream in a row of a Markdown table."""
    return _table(_STREAM)


def control_topics_table() -> str:
    """Describe each topic of a control plane in a row of a Markdown table."""
    return _table(_CONTROL)


def _table(topics: Topics | ControlTopics) -> str:
    of_colours = [colours_access(_STREAM, control) for control in (None, _CONTROL)]
    accesses = [entry for users in (access(_STREAM, _CONTROL), *of_colours) for entry in users.items()]
    contents = {
        getattr(topics, name): str(member.__doc__)
        for name, member in inspect.getmembers(type(topics), lambda member: isinstance(member, property))
    }
    if isinstance(topics, Topics):
        contents |= {topics.retry_in(tier): str(Topics.retry_in.__doc__) for tier in topics.tiers}
    rows = [_row(topic, topics.prefix, contents[topic.name], accesses) for topic in topics.all()]
    heading = f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}\n"
    return "".join([heading, *rows])


def _row(topic: Topic, prefix: str, content: str, accesses: Sequence[tuple[str, Access]]) -> str:
    writers = [user for user, grants in accesses if _names(grants.writes, topic.name)]
    readers = [user for user, grants in accesses if _names(grants.reads, topic.name)]
    cells = (
        f"`{topic.name.removeprefix(f'{prefix}.')}`",
        content,
        ", ".join(writers) or "nobody",
        ", ".join(readers) or f"{OBSERVE}, {OPERATOR}",
        topic.key or "none",
        "P" if topic.partitions is None else str(topic.partitions),
        _retention(topic),
    )
    return f"| {' | '.join(cells)} |\n"


def _names(allowed: Sequence[str], topic: str) -> bool:
    """Whether a topic is among those that a principal may use, but for those who may read the whole stream."""
    return any(
        topic == name or (name.endswith(ANY) and name != _ALL and topic.startswith(name.removesuffix(ANY)))
        for name in allowed
    )


def _retention(topic: Topic) -> str:
    if not topic.compacted:
        return _duration(topic.retention_ms)
    return "compacted" if topic.expire_ms is None else f"compacted, {_duration(topic.expire_ms)}"


def _duration(retention_ms: int) -> str:
    if retention_ms == FOREVER_MS:
        return "for ever"
    unit, unit_ms = ("day", DAY_MS) if retention_ms % DAY_MS == 0 else ("hour", _HOUR_MS)
    count = retention_ms // unit_ms
    return f"{count} {unit}{'s' * (count > 1)}"
