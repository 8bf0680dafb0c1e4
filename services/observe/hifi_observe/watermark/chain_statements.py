"""What is said of chains, from the watermarks of their pipes and what was read of the topics in between. Pure."""

from collections.abc import Mapping
from typing import Final

from hifi.runtime.clock import MICROSECONDS
from hifi_observe.watermark.chains import Chain, ChainJson, ChainLink, Key, Part, circle, held_by, via
from hifi_observe.watermark.statement import Watermark, iso, microseconds
from hifi_observe.watermark.watermark_store import WatermarkStore

_DELETED_US: Final = 7 * 24 * 3600 * MICROSECONDS


class ChainStatements:
    """The chains of a stream.

    Args:
        store: of the watermarks.
    """

    def __init__(self, store: WatermarkStore) -> None:
        self._store = store
        self.links: Mapping[str, ChainLink] = {}
        """Pipe to its link."""
        self._chains: dict[str, Chain] = {}

    def declare(self, links: Mapping[str, ChainLink]) -> None:
        """Take in which pipes read what others write; what was read of other topics is forgotten."""
        self.links = links
        for pipe, chain in list(self._chains.items()):
            link = links.get(pipe)
            if link is None or link.topic != chain.topic or via(links, pipe) != chain.via:
                del self._chains[pipe]

    def chain(self, pipe: str) -> Chain:
        """The chain that ends at a pipe with a link."""
        chain = self._chains.get(pipe)
        if chain is None:
            chain = self._chains[pipe] = Chain(self.links[pipe].topic, via(self.links, pipe))
        return chain

    def upstream(self, pipe: str) -> tuple[Key, int]:
        """What writes to the topic that a pipe with a link reads and is furthest behind, and up to when it is settled.

        Returns:
            Pipe and destination, and microseconds since 1970 UTC; 0: it is not known.
        """
        times_us = [(self._settled_us(key), key) for key in self.links[pipe].upstream]
        settled_us, key = min(times_us)
        return key, settled_us

    def state(self, statement: Watermark, now_us: int) -> ChainJson | None:
        """What is said of the chain that ends at the destination of a statement; None: the pipe has no link.

        Args:
            statement: about to be published.
            now_us: microseconds since 1970 UTC.
        """
        pipe, destination = statement["pipe"], statement["destination"]
        if pipe not in self.links:
            return None
        chain, before = self.chain(pipe), self._store.statement((pipe, destination))
        if self._store.published((pipe, destination)).withheld:
            chain.forget("a clock was set back")  # the times of its marks are by the clock before
        own_us = microseconds(statement["settled_until"])
        published = before["chain"] if before else None
        published_us = (
            microseconds(published["settled_until"]) if published and published["via"] == chain.via else 0
        )
        settled_us = max(published_us, chain.settled_us(own_us)) if own_us else 0
        because = self._because(pipe, chain, statement)
        deleted_us = max(chain.deleted_us, microseconds(published["deleted_at"]) if published else 0)
        if now_us - deleted_us < _DELETED_US:
            settled_us = published_us if own_us else 0
            name = chain.topic.topic
            because = [*because, f"topic {name}: records were deleted, which collect may not have read"]
        key, upstream_us = self.upstream(pipe)
        parts = [
            Part(self._held_upstream(key), upstream_us),
            Part(f"topic {chain.topic.topic}", chain.newest_read_us),
            Part(f"{pipe} to {destination}", settled_us),
        ]
        return {
            "settled_until": iso(settled_us) if settled_us else None,
            "via": list(chain.via),
            "held_by": held_by(parts, now_us),
            "deleted_at": iso(deleted_us) if deleted_us else None,
            "because": because,
        }

    def note_settled(self, pipe: str, settled_us: int) -> None:
        """All destinations of a pipe are settled up to a time."""
        if pipe in self.links:
            self.chain(pipe).drop_before(settled_us)

    def _because(self, pipe: str, chain: Chain, statement: Watermark) -> list[str]:
        around = circle(self.links, pipe)
        if around:
            return [f"the pipes form a circle: {', '.join([*around, around[0]])}"]
        if chain.problem:
            return [f"topic {chain.topic.topic}: {chain.problem}"]
        if statement["settled_until"] is None:
            return list(statement["because"])
        return []

    def _held_upstream(self, key: Key) -> str:
        """The name of an upstream part, or of the part before it that holds it."""
        statement = self._store.statement(key)
        chain = statement["chain"] if statement else None
        return (chain["held_by"] if chain else None) or f"{key[0]} to {key[1]}"

    def _settled_us(self, key: Key) -> int:
        statement = self._store.statement(key)
        if statement is None:
            return 0
        if key[0] not in self.links:
            return microseconds(statement["settled_until"])
        return microseconds(statement["chain"]["settled_until"]) if statement["chain"] else 0
