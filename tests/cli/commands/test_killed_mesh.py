"""A mesh that is killed under load and started again on the same data loses no acknowledged event."""

import json
import signal
import time

import pytest
from tests.support import external_sender

from hifi_infra.ports import free_port, is_free

pytestmark = pytest.mark.timeout(500)
PIPE = """
pipe: count
source:
  keys: [{{sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824}}]
normalize:
  fields: {{number: {{from: n, cast: string}}}}
enrich:
  fields: {{n: int}}
  derive: {{even: n % 2 = 0}}
destinations:
  - name: books
    url: {url}/count
"""


@pytest.mark.more  # faster: tests/infra/mesh/test_mesh_killed.py; `make chaos-quick` kills every service under load
def test_everything_acknowledged_is_delivered(start_hifi, external_destination, tmp_path, record_property):
    pipes, data, port = tmp_path / "pipes", tmp_path / "data", free_port()
    console = free_port(but={port})
    pipes.mkdir()
    (pipes / "count.yaml").write_text(PIPE.format(url=external_destination.url))
    arguments = ("up", "--pipes", pipes, "--data", data, "--port", port, "--console-port", console)
    mesh = start_hifi(*arguments)
    mesh.wait_for("Send events to", 300)
    sender = external_sender.ExternalSender(port, "hello", rate=200)
    sender.start()
    time.sleep(6)
    mesh.signal(signal.SIGKILL)
    mesh.wait()
    count_before = len(sender.acknowledged)
    mesh.wait_gone(5)
    assert is_free(port)
    counts, _ = external_sender.arrivals(external_destination)
    under_way = set(sender.acknowledged[:count_before]) - set(counts)

    restarted = start_hifi(*arguments)
    restarted.wait_for("Send events to", 300)
    time.sleep(3)
    sender.stop()
    assert len(sender.acknowledged) > count_before, "it takes events again"
    counts, bodies = external_sender.wait_for(sender.acknowledged, external_destination, 120)
    repeated_counts = {name: count for name, count in counts.items() if count > 1}
    record_property("under_way_at_the_kill", len(under_way))
    record_property("duplicates", sum(repeated_counts.values()) - len(repeated_counts))
    print(
        f"{count_before} acknowledged before the kill, {len(under_way)} of them under way; "
        f"{len(repeated_counts)} came twice"
    )
    assert sum(repeated_counts.values()) - len(repeated_counts) <= count_before, (
        "a replay repeats no more than there was"
    )
    declared = {"n": 1, "é": "ü", "number": "1", "even": False}
    assert json.loads(bodies["e-1"][1]) == declared
    restarted.signal(signal.SIGINT)
    assert restarted.wait() == 0
    restarted.wait_gone()
