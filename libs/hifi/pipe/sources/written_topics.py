"""Topics that the sources of two pipes would both have written: each would get the changes of the other. Pure."""

from collections.abc import Mapping
from typing import Any

from hifi.pipe.sources.collected import CollectedSource


def shared_topic(source: Any, other_source: Any) -> str | None:
    """A topic that both sources have written on a cluster of shared bootstrap servers; None: there is none."""
    if not (isinstance(source, CollectedSource) and isinstance(other_source, CollectedSource)):
        return None
    shared_topics = source.written_topics & other_source.written_topics
    return min(topic for _, topic in shared_topics) if shared_topics else None


def topic_refusal(source: Any, sources_by_pipe: Mapping[str, Any]) -> str | None:
    """Why a source cannot be that of a pipe besides other pipes; None: it can.

    Args:
        source: of the pipe.
        sources_by_pipe: sources of the other pipes by name.
    """
    for name, other_source in sources_by_pipe.items():
        if topic := shared_topic(source, other_source):
            return (
                f"the pipe {name!r} has its changes written to the topic {topic!r} too, so each would get those of the"
                " other; give each its own topic"
            )
    return None
