"""Whatever a record of a topic is that a service or a command follows, it is read or refused as documented.

A record that is refused leaves what was read before, or withdraws what its key had: never the other way round. What was
read can be used afterwards, and a readable record of the same key is taken.
"""

import copy
import operator
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import Any, Final

import orjson
import pytest
from aiokafka import ConsumerRecord
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.followed_topics import CONTROL, FOLLOWED, TOPICS, Followed

EXAMPLES: Final = (100, pytest.param(3000, marks=pytest.mark.more))
"""Records of each follower."""
NOT_FOLLOWED: Final = {
    TOPICS.raw: "events, see the decoder `record`",
    TOPICS.normalized: "as `raw`",
    TOPICS.enriched: "as `raw`",
    TOPICS.retry_out: "as `raw`",
    TOPICS.parked: "as `raw`",
    TOPICS.dead_letter: "as `raw`",
    TOPICS.receipts: "as `raw`",
    **{TOPICS.retry_in(tier): "as `raw`" for tier in TOPICS.tiers},
    TOPICS.accepted: "the ledger of observe takes it with events",
    TOPICS.ids: "hashes of a fixed size",
    TOPICS.collect_leader: "no records",
    TOPICS.enrich_leader: "no records",
    TOPICS.lake_leader: "no records",
    TOPICS.state_leader: "no records",
    TOPICS.enrich_warm_up: "made-up events",
}
"""Topics without a follower, and why."""
FUTURE: Final = "of_a_later_release"
ODD: Final = [
    *(b"null", b"true", b"0", b"-1", b"5", b"1.5", b"1e308", b"1e999", b"9223372036854775808"),
    *(
        b'"5"',
        b'"x"',
        b'""',
        b'"0"',
        b'"2099-01-01"',
        b'"%s"' % (b"9" * 30),
        b'"%s"' % (b"9" * 5000),
        b"[]",
        b"{}",
        b"[null]",
        b'{"a":1}',
    ),
    *(b"[[" * 100 + b"]]" * 100, b'"\\u0000"'),
]
"""Values as JSON."""
JUNK: Final = [*ODD, None, b"", b"\xff", b"{", b'"\\ud800"', b"[" * 100_000, b'{"version":2}', b'{"a":1}' * 2]
"""Values of records."""
KEYS: Final = [
    *(
        None,
        b"",
        b"\xff",
        b"x",
        b"/",
        b"//",
        b"a/b/c/d/e/f",
        b"[]",
        b"p;",
        b"p;" + b"9" * 5000,
        b'["version"]',
    ),
    *(
        b'["version","a",-1]',
        b'["level",{}]',
        b"live/x",
        b"part/p/1/x",
        b"silence/",
        b"oidc:x",
        b"p/d/x",
        b"\0",
    ),
]


def paths(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values below the top of a JSON value are."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, child in children:
        yield (*path, name)
        yield from paths(child, (*path, name))


def changed(tree: Any, path: tuple[Any, ...], content: bytes | None) -> bytes:
    """A JSON value with other content at a path; None: without it, and with a field of a later release."""
    tree = copy.deepcopy(tree)
    *parents, last = path
    parent = reduce(operator.getitem, parents, tree)
    if content is None:
        del parent[last]
        (parent.append if isinstance(parent, list) else partial(parent.__setitem__, FUTURE))({FUTURE: [1]})
    else:
        parent[last] = orjson.Fragment(content)
    return orjson.dumps(tree)


def records(follower: Followed) -> st.SearchStrategy[tuple[bytes | None, bytes | None]]:
    """Records that are changed, of other keys, or something else."""
    readable = [(key, orjson.loads(value)) for key, value in follower.records if value is not None]
    places = [(key, tree, path) for key, tree in readable for path in paths(tree)]
    kinds = [
        st.tuples(st.sampled_from([*(key for key, _ in follower.records), *KEYS]), st.sampled_from(JUNK)),
        st.tuples(st.sampled_from(KEYS), st.sampled_from([value for _, value in follower.records])),
    ]
    if places:
        kinds.append(
            st.builds(
                lambda place, content: (place[0], changed(place[1], place[2], content)),
                st.sampled_from(places),
                st.sampled_from([None, *ODD]),
            )
        )
    return st.one_of(*kinds[-1:] * 3, *kinds)


def record_of(follower: Followed, offset: int, key: bytes | None, value: bytes | None) -> ConsumerRecord:
    headers: Sequence[tuple[str, bytes]] = follower.headers
    return ConsumerRecord(follower.topic, 0, offset, 1_700_000_000_000, 0, key, value, None, 0, 0, headers)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("name", FOLLOWED)
def test_each_record_is_read_or_refused_as_documented(name: str, examples: int) -> None:
    follower = FOLLOWED[name]

    @settings(max_examples=examples, derandomize=True, database=None)
    @given(records(follower))
    def check(changed_record: tuple[bytes | None, bytes | None]) -> None:
        take, read = follower.start()
        for offset, (key, value) in enumerate(follower.records):
            take(record_of(follower, offset, key, value))
        before = read()
        key, value = changed_record
        try:
            take(record_of(follower, 10, key, value))
        except follower.refusals:
            if follower.withdraws:
                withdrawn = (key or b"").decode("utf-8", "replace")
                after = read()
                assert withdrawn not in after
                assert after == {name: content for name, content in before.items() if name in after}
            else:
                assert read() == before
        read()
        for offset, (key, value) in enumerate(follower.records, 11):
            take(record_of(follower, offset, key, value))
        read()

    check()


def test_each_topic_has_a_follower_or_a_reason_for_none() -> None:
    topic_names = {topic.name for topics in (TOPICS, CONTROL) for topic in topics.all()}
    assert topic_names == {follower.topic for follower in FOLLOWED.values()} | NOT_FOLLOWED.keys()


@pytest.mark.parametrize("name", FOLLOWED)
def test_each_follower_reads_its_records(name: str) -> None:
    follower = FOLLOWED[name]
    take, read = follower.start()
    empty = read()
    for offset, (key, value) in enumerate(follower.records):
        take(record_of(follower, offset, key, value))
    assert read() != empty, "what is read of it does not show"
