"""Statements about chains, from the watermarks of their pipes and the readings of the topics in between. Pure."""

from collections.abc import Mapping
from typing import Final

from hifi.runtime.clock import MICROSECONDS
from hifi_observe.watermark.chains import Chain, ChainJson, ChainLink, ChainSegment, Key, circle, held_by, via
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
        """Take in the links of pipes; what was read of other topics is forgotten."""
        self.links = links
        for pipe, chain in list(self._chains.items()):
            link = links.get(pipe)
            if link is None or link.topic != chain.topic or via(links, pipe) != chain.via:
                del self._chains[pipe]

    def known_chain(self, pipe: str) -> Chain | None:
        """The chain that ends at a pipe; None: it has no link, or not any more."""
        return self.chain(pipe) if pipe in self.links else None

    def chain(self, pipe: str) -> Chain:
        """The chain that ends at a pipe with a link."""
        chain = self._chains.get(pipe)
        if chain is None:
            chain = self._chains[pipe] = Chain(self.links[pipe].topic, via(self.links, pipe))
        return chain

    def upstream(self, pipe: str) -> tuple[Key, int]:
        """The destination furthest behind of those that write the topic of a pipe with a link, and its settled time.

        Returns:
            Pipe and destination, and microseconds since 1970 UTC; 0: it is not known.
        """
        times_us = [(self._settled_us(key), key) for key in self.links[pipe].upstream]
        settled_us, key = min(times_us)
        return key, settled_us

    def state(self, statement: Watermark, now_us: int) -> ChainJson | None:
        """The statement about the chain that ends at a destination; None: the pipe has no link.

        Args:
            statement: about to be published.
            now_us: microseconds since 1970 UTC.
        """
        pipe, destination = statement["pipe"], statement["destination"]
        if pipe not in self.links:
            return None
        chain, previous_statement = self.chain(pipe), self._store.statement((pipe, destination))
        if self._store.published((pipe, destination)).withheld:
            chain.forget("a clock was set back")  # the times of its marks are by the clock before
        pipe_settled_us = microseconds(statement["settled_until"])
        published_chain = previous_statement["chain"] if previous_statement else None
        published_us = (
            microseconds(published_chain["settled_until"])
            if published_chain and published_chain["via"] == chain.via
            else 0
        )
        settled_us = max(published_us, chain.settled_us(pipe_settled_us)) if pipe_settled_us else 0
        reasons = self._reasons(pipe, chain, statement)
        deleted_us = max(
            chain.deleted_us, microseconds(published_chain["deleted_at"]) if published_chain else 0
        )
        if now_us - deleted_us < _DELETED_US:
            settled_us = published_us if pipe_settled_us else 0
            topic_name = chain.topic.topic
            reasons = [*reasons, f"topic {topic_name}: records were deleted, which collect may not have read"]
        key, upstream_us = self.upstream(pipe)
        segments = [
            ChainSegment(self._held_upstream(key), upstream_us),
            ChainSegment(f"topic {chain.topic.topic}", chain.newest_read_us),
            ChainSegment(f"{pipe} to {destination}", settled_us),
        ]
        return {
            "settled_until": iso(settled_us) if settled_us else None,
            "via": list(chain.via),
            "held_by": held_by(segments, now_us),
            "deleted_at": iso(deleted_us) if deleted_us else None,
            "because": reasons,
        }

    def note_settled(self, pipe: str, settled_us: int) -> None:
        """All destinations of a pipe are settled up to a time."""
        if pipe in self.links:
            self.chain(pipe).drop_before(settled_us)

    def _reasons(self, pipe: str, chain: Chain, statement: Watermark) -> list[str]:
        circle_pipes = circle(self.links, pipe)
        if circle_pipes:
            return [f"the pipes form a circle: {', '.join([*circle_pipes, circle_pipes[0]])}"]
        if chain.problem:
            return [f"topic {chain.topic.topic}: {chain.problem}"]
        if statement["settled_until"] is None:
            return list(statement["because"])
        return []

    def _held_upstream(self, key: Key) -> str:
        """The name of an upstream segment, or of the segment before it that holds it."""
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
