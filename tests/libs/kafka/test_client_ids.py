"""Each Kafka client has an id by which the logs and quotas of a broker tell who it is."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hifi.kafka import clients
from hifi.kafka.settings import ServiceSettings

ROOT = Path(__file__).parents[3]
FILES = [
    file
    for folder in ("libs/hifi", "connectors", "services", "infra/hifi_infra", "cli/hifi_cli")
    for file in (ROOT / folder).rglob("*.py")
    if "build" not in file.parts
]
POSITIONS = {
    "plain_producer": 1,
    "transactional_producer": 2,
    "assigned_consumer": 1,
    "topic_consumer": 1,
    "admin_client": 1,
    "started_admin": 1,
}
"""Function of hifi.kafka.clients to the position of its argument `client_id`."""
CONVENTION = re.compile(
    r"'hifi-[a-z-]+' | f'hifi-\{self\._pipe\}' | _CLIENT_ID | (self\.)?_?client_id | (self\._)?settings\.instance",
    re.VERBOSE,
)


def _client_ids(tree: ast.Module) -> Iterator[str]:
    """The expression of each call's client id, or what is missing."""
    for node in ast.walk(tree):
        name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in POSITIONS:
            position = POSITIONS[name]
            yield ast.unparse(node.args[position]) if len(node.args) > position else f"{name} has none"


async def test_each_function_that_makes_a_client_gives_it_its_id() -> None:
    settings = ServiceSettings(instance="i")
    kafka_clients = (
        clients.plain_producer("localhost:1", "i").client,
        clients.transactional_producer("localhost:1", "writer", "i", timeout_s=60).client,
        clients.assigned_consumer("localhost:1", "i")._client,
        clients.adaptive_consumer(settings)._client,
        clients.group_consumer(settings, "g")._client,
        clients.admin_client("localhost:1", "i")._client,
    )
    assert {client._client_id for client in kafka_clients} == {"i"}


def test_each_client_is_named_by_its_instance_its_pipe_or_its_task() -> None:
    client_ids = {
        str(file.relative_to(ROOT)): list(_client_ids(ast.parse(text)))
        for file in FILES
        if any(name in (text := file.read_text("utf-8")) for name in POSITIONS)
    }
    assert sum(map(len, client_ids.values())) > 40, "the calls are not found"
    assert {
        file: unconventional
        for file, expressions in client_ids.items()
        if (unconventional := [text for text in expressions if not CONVENTION.fullmatch(text)])
    } == {}


@pytest.mark.parametrize("call", ["topic_consumer(kafka)", "clients.admin_client(kafka, 'aiokafka-0.14')"])
def test_the_check_of_client_ids_finds(call: str) -> None:
    (text,) = _client_ids(ast.parse(call))
    assert not CONVENTION.fullmatch(text)
