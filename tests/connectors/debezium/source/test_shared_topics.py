"""Two pipes do not have the changes of their tables written to one topic."""

from pathlib import Path

import pytest
from tests.support.collect.collected_stream import collected_stream, until
from tests.support.stream_process import readyz

from hifi.pipe.loader import load
from hifi.pipe.model import Pipe
from hifi.pipe.sources.written_topics import shared_topic
from hifi_manage.pipe_text import read_pipe

PIPE = """\
pipe: {name}
source:
  kind: debezium
  connect: http://127.0.0.1:9
  bootstrap: {bootstrap}
  topic: {topic}
  database: {{host: 127.0.0.1, name: shop, user: hifi, password_file: /etc/hifi/shop-password}}
  tables: [public.customers]
destinations:
  - name: search
    url: http://127.0.0.1:9/customers
"""
FIRST = PIPE.format(name="first", bootstrap="127.0.0.1:9092", topic="changes")


def second(topic: str = "changes", bootstrap: str = "127.0.0.1:9092") -> str:
    return PIPE.format(name="second", bootstrap=bootstrap, topic=topic)


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "loopback")


@pytest.mark.parametrize(
    "text",
    [
        second(),
        second("changes.keys"),
        second(bootstrap="a:1,127.0.0.1:9092"),
        *(second(bootstrap=server) for server in ("LocalHost.:9092", "127.0.0.1:09092", "0x7f.1:9092")),
    ],
)
def test_the_second_pipe_of_a_topic_is_refused_when_it_is_checked_and_published(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.yaml").write_text(FIRST)
    (tmp_path / "b.yaml").write_text(text)
    first_load, [problem] = load(tmp_path)
    assert (problem.file.name, problem.line, problem.where) == ("b.yaml", 6, "source.topic")
    assert "the pipe 'first' has its changes written to the topic 'changes" in problem.message
    loaded_pipes = {pipe.pipe.pipe: pipe.pipe for pipe in first_load}
    [refusal] = read_pipe(text.encode(), loaded_pipes, coloured=False)[1]
    assert (refusal.where, refusal.message) == ("source.topic", problem.message)
    assert read_pipe(FIRST.encode(), {"first": loaded_pipes["first"]}, coloured=False)[1] == []


@pytest.mark.parametrize("text", [second("others"), second(bootstrap="127.0.0.1:9093")])
def test_pipes_of_other_topics_and_other_clusters_pass(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(FIRST)
    (tmp_path / "b.yaml").write_text(text)
    assert load(tmp_path)[1] == []


def test_topics_of_the_streams_own_kafka_connect_are_on_one_cluster_by_whatever_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "kafka=*.example,loopback")
    topic = "hifi-connect.changes"
    texts = [
        PIPE.format(name=name, bootstrap=f"{name}.example:9092", topic=topic) for name in ("first", "second")
    ]
    [source, other_source] = [
        pipe.source for text in texts if (pipe := read_pipe(text.encode(), {}, coloured=False)[0])
    ]
    assert shared_topic(source, other_source) == topic


async def test_collect_does_not_read_the_second_pipe_of_a_topic(kafka: str, tmp_path: Path) -> None:
    async with collected_stream(kafka, tmp_path / "log") as stream:
        for name in ("second", "first"):
            (tmp_path / "pipe.yaml").write_text(PIPE.format(name=name, bootstrap=kafka, topic=stream.source))
            [loaded_pipe], problems = load(tmp_path)
            assert problems == []
            assert isinstance(loaded_pipe.pipe, Pipe)
            await stream.publish(loaded_pipe.pipe)
        _, port = await stream.start("collect")
        await until(lambda: "the pipe 'second' has its changes written" in str(readyz(port)[1]))
        assert "the pipe 'first' has its changes written" not in str(readyz(port)[1])
