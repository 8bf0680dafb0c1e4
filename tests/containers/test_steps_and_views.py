"""The services state and view in containers, by their profiles: a step gives results, and a view has rows over HTTP."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import urllib3
from tests.support.containers.stack import ComposeMesh, SteadySender, run, slow_pipes, until

from hifi_infra.ports import free_port

pytestmark = pytest.mark.more  # without containers: test_state_on_mesh.py and test_view_on_mesh.py
PROFILES = ("state", "view")
READ_KEY = "read-key-of-a-test"
STEP = """
pipe: order-totals
source:
  kind: step
  from: orders
  key: {customer: string}
  window: {tumbling: 5s}
  lateness: 2s
  fields: {orders: count(*), spent: sum(amount)}
destinations: [{name: board, url: "http://destination:9100/order-totals"}]
"""
VIEW = f"""
view: orders-now
from: {{pipe: orders}}
key: [id]
order: time
fields: {{customer: text, amount: double}}
serve: {{keys: [{{sha256: {hashlib.sha256(READ_KEY.encode()).hexdigest()}}}]}}
"""


@pytest.fixture(scope="module")
def mesh(
    make_mesh: Callable[..., ComposeMesh], tag: str, tmp_path_factory: pytest.TempPathFactory
) -> ComposeMesh:
    for image in PROFILES:
        built = run("docker", "image", "inspect", f"hifi-{image}:{tag}", check=False).returncode == 0
        assert built, f"no image hifi-{image}:{tag}: make images ARGS={image} HIFI_TAG={tag}"
    pipes = slow_pipes(tmp_path_factory.mktemp("steps"))
    for name, declaration in (("order-totals", STEP), ("orders-now", VIEW)):
        Path(pipes, f"{name}.yaml").write_text(declaration)
    mesh = make_mesh("steps", profiles=PROFILES, HIFI_PIPES=pipes, HIFI_VIEW_PUBLISHED_PORT=str(free_port()))
    mesh.up()
    return mesh


def view_row(mesh: ComposeMesh, name: str) -> dict[str, Any] | None:
    """The row of an order; None: the view has none yet."""
    answer = urllib3.request(
        "GET",
        f"http://127.0.0.1:{mesh.env['HIFI_VIEW_PUBLISHED_PORT']}/v1/views/orders-now/rows/{name}",
        headers={"authorization": f"Bearer {READ_KEY}"},
        retries=False,
    )
    assert answer.status in {200, 404}, answer.data
    return dict(answer.json()) if answer.status == 200 else None


async def test_a_step_has_results_and_a_view_has_rows(
    mesh: ComposeMesh, sender: Callable[[ComposeMesh], SteadySender]
) -> None:
    assert mesh.health("state") == mesh.health("view") == ["healthy"]
    event_sender = sender(mesh)
    await event_sender.send_while(
        asyncio.to_thread(until, lambda: mesh.requests("/order-totals"), "a result arrives", every_s=2)
    )
    for _, body in mesh.requests("/order-totals"):
        result = json.loads(body)
        assert result["orders"] > 0
        assert result["spent"] == 12.5 * result["orders"]
    name = min(event_sender.accepted)
    until(lambda: view_row(mesh, name), "the view has the order")
    row = view_row(mesh, name)
    assert row is not None
    assert (row["id"], row["amount"]) == (name, 12.5)
    assert row["customer"].startswith("c")
