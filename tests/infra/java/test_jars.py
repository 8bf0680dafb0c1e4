"""Jars are exactly those that were locked, or not there at all. A repository on this machine stands in."""

import hashlib
import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hifi.spark.jars
from hifi.runtime.errors import Misconfigured
from hifi_infra.java import jars

CONTENT = {f"org.example:part-{number}:1.{number}": os.urandom(200_000) for number in range(6)}
RUN = """
import sys
from pathlib import Path
import hifi.spark.jars
from hifi_infra.java import jars
hifi.spark.jars.LOCK = Path(sys.argv[1])
jars.repositories = lambda: {"here": sys.argv[2]}
print(*jars.kafka_jars(), sep="\\n")
"""


def url_path(coordinate: str) -> str:
    group, artifact, version = coordinate.split(":")
    return f"/{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"


class Repository(http.server.ThreadingHTTPServer):
    """Serves CONTENT; counts the answers; where `stall` is set, it stops in the middle of every jar."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = {url_path(coordinate): body for coordinate, body in CONTENT.items()}
        self.answers = 0
        self.stall = threading.Event()
        self.closed = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        body = self.server.content.get(self.path)
        if body is None:
            self.send_error(404)
            return
        self.server.answers += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        middle = len(body) // 2
        self.wfile.write(body[:middle])
        if self.server.stall.is_set():
            self.server.closed.wait()
        self.wfile.write(body[middle:])

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def repository() -> Iterator[Repository]:
    with Repository() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.closed.set()
        server.shutdown()
        thread.join()


def write_lock(path: Path, content: dict[str, bytes]) -> Path:
    lines = (
        f'"{coordinate}" = {{ bytes = {len(body)}, sha256 = "{hashlib.sha256(body).hexdigest()}" }}'
        for coordinate, body in content.items()
    )
    path.write_text("[kafka]\n" + "\n".join(lines) + "\n[spark]\n")
    return path


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return write_lock(tmp_path / "some.lock", CONTENT)


@pytest.fixture
def target(
    tmp_path: Path, lock: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """The jar folder, empty; this process uses the lock and the repository above."""
    folder = tmp_path / "jars"
    monkeypatch.setenv("HIFI_JARS", str(folder))
    monkeypatch.setattr(hifi.spark.jars, "LOCK", lock)
    monkeypatch.setattr(jars, "repositories", lambda: {"here": repository.url})
    hifi.spark.jars.locked_jars.cache_clear()
    yield folder
    hifi.spark.jars.locked_jars.cache_clear()


def in_a_process(lock: Path, repository: Repository) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RUN, str(lock), repository.url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_all_are_there_byte_for_byte_and_nothing_else(target: Path) -> None:
    paths = jars.kafka_jars()
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert names(target) == {path.name for path in paths}


def test_a_second_call_asks_nobody(target: Path, repository: Repository) -> None:
    first_jars = jars.kafka_jars()
    answers_before = repository.answers
    assert jars.kafka_jars() == first_jars
    assert repository.answers == answers_before


def test_only_what_is_missing_or_cut_short_is_fetched_again(target: Path, repository: Repository) -> None:
    paths = jars.kafka_jars()
    paths[1].unlink()
    paths[4].write_bytes(b"short")
    answers_before = repository.answers
    jars.kafka_jars()
    assert repository.answers == answers_before + 2
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())


def test_a_jar_that_is_not_the_locked_one_is_refused_by_name_with_both_sums(
    target: Path, repository: Repository
) -> None:
    coordinate = "org.example:part-3:1.3"
    changed_jar = CONTENT[coordinate][:-1] + bytes([CONTENT[coordinate][-1] ^ 1])
    repository.content[url_path(coordinate)] = changed_jar
    with pytest.raises(Misconfigured) as refusal:
        jars.kafka_jars()
    for text in ("part-3-1.3.jar", hashlib.sha256(CONTENT[coordinate]).hexdigest(), "--lock"):
        assert text in str(refusal.value)
    assert hashlib.sha256(changed_jar).hexdigest() in str(refusal.value)
    assert "part-3-1.3.jar" not in names(target)
    assert not any(name.startswith(".part-") for name in names(target))


def test_a_jar_that_is_not_to_be_had_is_told(target: Path, repository: Repository) -> None:
    del repository.content[url_path("org.example:part-0:1.0")]
    with pytest.raises(Misconfigured, match=r"org\.example:part-0:1\.0 could not be downloaded"):
        jars.kafka_jars()


def test_a_download_that_was_killed_leaves_nothing_half(
    target: Path, lock: Path, repository: Repository
) -> None:
    repository.stall.set()
    with in_a_process(lock, repository) as process:
        end_s = time.monotonic() + 30
        while not list(target.glob(".part-*/**/*.jar")):
            assert time.monotonic() < end_s
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert list(target.glob("*.jar")) == []
    repository.stall.clear()
    assert [path.read_bytes() for path in jars.kafka_jars()] == list(CONTENT.values())


def test_what_killed_downloads_left_is_swept_after_a_while(target: Path) -> None:
    (target / ".part-old").mkdir(parents=True)
    (target / ".part-new").mkdir()
    os.utime(target / ".part-old", (0, 0))
    jars.kafka_jars()
    assert (target / ".part-new").exists()
    assert not (target / ".part-old").exists()


def test_several_processes_at_once_all_get_the_whole(
    target: Path, lock: Path, repository: Repository
) -> None:
    processes = [in_a_process(lock, repository) for _ in range(3)]
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert [Path(line).read_bytes() for line in output.split()] == list(CONTENT.values())


def test_a_folder_that_cannot_be_written_is_told(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.write_text("a file")
    with pytest.raises(Misconfigured, match="set HIFI_JARS to another folder"):
        jars.kafka_jars()


def test_the_lock_names_no_registry_and_fits_the_pins() -> None:
    text = hifi.spark.jars.LOCK.read_text()
    assert not re.search(r"://|repo|(^|\s)/", text)
    for roots in (*jars.KAFKA, *jars.KAFKA_NEXT, *jars.SPARK, *jars.CONNECT, *jars.DEBEZIUM):
        assert all(f'"{root}"' in text for root in roots)
    assert text.count("kafka-clients") == 4
    for line in text.splitlines():
        assert re.fullmatch(
            r'(#.*|\[[\w-]+\]|"[^":]+:[^":]+:[^":]+" = \{ bytes = \d+, sha256 = "[0-9a-f]{64}" \}|)', line
        )
