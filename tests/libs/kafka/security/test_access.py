"""The table of what each service may do: least privilege, and nothing used that it lacks."""

import ast
from pathlib import Path

import pytest

from hifi.kafka.security.access import Acl, access
from hifi.kafka.topics import Topics, principal_topics

ROOT = Path(__file__).parents[4]
TOPICS = Topics("s")
PRINCIPALS = principal_topics("s")
PRINCIPAL_TOPICS = {topic.name for topic in PRINCIPALS.all()}
NAMES = {name for name in vars(Topics) if isinstance(getattr(Topics, name), property)}
NOT_TOPICS = {"retry_in_prefix", "spark_group_prefix"}


def _writers(topic: str) -> set[str]:
    return {
        role
        for role, service_access in access(TOPICS).items()
        if any(
            topic.startswith(name[:-1]) if name.endswith("*") else topic == name
            for name in service_access.writes
        )
    }


@pytest.mark.parametrize(
    ("topic", "writers"),
    [
        (TOPICS.pipes, {"publisher"}),
        (TOPICS.enriched, {"enrich"}),
        (TOPICS.accepted, {"ingest", "collect", "state"}),
        (TOPICS.raw, {"ingest", "collect", "state", "observe", "operator"}),
        (TOPICS.normalized, {"normalize", "observe", "operator"}),
        (TOPICS.receipts, {"normalize", "egest", "lake"}),
        (TOPICS.ids, {"normalize"}),
        (TOPICS.source_positions, {"normalize"}),
        (TOPICS.source_progress, {"collect"}),
        (TOPICS.folds, {"state"}),
        (TOPICS.retry_out, {"retrier", "observe", "operator"}),
        (TOPICS.retry_in(TOPICS.tiers[0]), {"egest"}),
        (TOPICS.dead_letter, {"normalize", "enrich", "egest", "lake", "state", "retrier"}),
        (TOPICS.minutes, {"observe"}),
        (TOPICS.alarms, {"observe"}),
        (TOPICS.enrich_leader, set()),
        (PRINCIPALS.principals, {"publisher"}),
        (PRINCIPALS.audit, {"publisher", "observe", "operator"}),
        (PRINCIPALS.last_used, {"observe"}),
        (TOPICS.write_keys, {"publisher"}),
        (TOPICS.key_uses, {"ingest"}),
        (TOPICS.key_usage, {"ingest"}),
        (
            TOPICS.certificates,
            {"ingest", "collect", "normalize", "enrich", "egest", "lake", "state"}
            | {"retrier", "view", "observe"},
        ),
    ],
)
def test_only_these_may_write_a_topic(topic: str, writers: set[str]) -> None:
    assert _writers(topic) == writers


def test_only_the_publisher_creates_topics_and_nobody_alters_the_cluster() -> None:
    entries = {role: service_access.acls() for role, service_access in access(TOPICS).items()}
    assert {role for role, acls in entries.items() if any(acl.operation == "Create" for acl in acls)} == {
        "publisher"
    }
    assert not [acl for acls in entries.values() for acl in acls if acl.resource == "cluster"]


def test_every_entry_is_within_the_stream() -> None:
    for service_access in access(TOPICS).values():
        assert all(acl.name.startswith("s.") or acl.name in PRINCIPAL_TOPICS for acl in service_access.acls())


@pytest.mark.parametrize(
    "service", ["ingest", "collect", "normalize", "enrich", "egest", "retrier", "observe"]
)
def test_a_service_uses_no_topic_or_group_without_an_entry(service: str) -> None:
    """Every property of Topics that the service's code names must be in its row of the table."""
    used_topics: set[str] = set()
    for file in (ROOT / "services" / service / f"hifi_{service}").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("topics"):
                used_topics.add(node.attr)
    assert used_topics, "the test no longer recognizes how services name topics"
    acls = access(TOPICS)[service].acls()
    for name in sorted((used_topics & NAMES) - NOT_TOPICS):
        assert _covers(acls, getattr(TOPICS, name)), f"{service} uses Topics.{name} without an ACL"
    if "retry_in" in used_topics:
        assert all(_covers(acls, TOPICS.retry_in(tier)) for tier in TOPICS.tiers)
    if "group" in used_topics:
        # Ingest is in no group; it only reads the offsets of others.
        operation = "Describe" if service == "ingest" else "Read"
        assert any(acl.resource == "group" and acl.operation == operation for acl in acls)


def test_every_topic_of_the_stream_is_used_by_somebody() -> None:
    stream_acls = [
        acl for service_access in access(TOPICS).values() for acl in service_access.acls() if not acl.prefixed
    ]
    retries = TOPICS.retry_in_prefix
    unused = {topic.name for topic in TOPICS.all()} - {acl.name for acl in stream_acls}
    assert {name for name in unused if not name.startswith(retries)} == set()


def _covers(acls: list[Acl], topic: str) -> bool:
    return any(
        acl.resource == "topic" and (topic.startswith(acl.name) if acl.prefixed else topic == acl.name)
        for acl in acls
    )
