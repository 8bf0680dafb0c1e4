"""Every Kafka client of the product gets its options from hifi.kafka.security, so none can bypass the settings.

That hifi.kafka.clients makes them all is a test of the tree.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
CLIENTS = {
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "AIOKafkaAdminClient",
    "AdaptiveConsumer",
    "CooperativeConsumer",
    "RecordConsumer",
}
SECURITY = ROOT / "libs/hifi/kafka/security"
ADDRESSES = {"bootstrap_servers", "bootstrap.servers", "kafka.bootstrap.servers"}
EXCEPT = {
    ROOT / "services/enrich/hifi_enrich/spark/make_class_archive.py",
    ROOT / "infra/hifi_infra/connect/worker_settings.py",
}
"""One names an address at which nothing listens, the other passes on the options of its callers."""
FILES = [
    file
    for folder in ("libs/hifi", "connectors", "services", "infra/hifi_infra", "cli/hifi_cli")
    for file in (ROOT / folder).rglob("*.py")
    if SECURITY not in file.parents and "build" not in file.parts
]


def _secured(call: ast.Call) -> bool:
    """Whether the call has `**client_options(…)`, or `**(defaults | options)` of `group_consumer`."""
    splats = [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg is None]
    return any(text.startswith("client_options(") or text == "defaults | options" for text in splats)


def test_every_client_is_made_with_the_security_options() -> None:
    calls = [
        (file, node)
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in CLIENTS
    ]
    assert len(calls) >= len(CLIENTS)
    assert [f"{file}:{node.lineno}" for file, node in calls if not _secured(node)] == []


def test_every_client_with_the_security_of_a_pipe_is_judged_for_that_pipe() -> None:
    argument_counts = {"client_options": 3, "topic_identity": 4, "KeptKeys": 4, "ProgressWatchdog": 5}
    calls = [
        (file, node)
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and "security" in ast.unparse(node)
    ]
    clients = [(file, call) for file, call in calls if ast.unparse(call.func) in argument_counts]
    assert len(clients) > 10
    assert [
        f"{file}:{call.lineno}"
        for file, call in clients
        if len(call.args) < argument_counts[ast.unparse(call.func)]
    ] == []
    secured_calls = [
        (file, call) for file, call in calls if any(word.arg == "security" for word in call.keywords)
    ]
    assert len(secured_calls) > 10
    assert [
        f"{file}:{call.lineno}"
        for file, call in secured_calls
        if all(word.arg != "pipe" for word in call.keywords)
    ] == []


def test_no_other_module_names_bootstrap_servers() -> None:
    locations = []
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = node.arg if isinstance(node, ast.keyword) else getattr(node, "value", None)
            if isinstance(name, str) and name in ADDRESSES and file not in EXCEPT and hasattr(node, "lineno"):
                locations.append(f"{file}:{node.lineno}")
    assert locations == []
