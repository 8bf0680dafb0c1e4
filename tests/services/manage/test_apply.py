"""`hifi apply` and `hifi diff` by the real management API: by file, and never over a change of another author."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.manage.managed_stream import Managed, body

from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.pipe.model import Pipe
from hifi.runtime.errors import HifiError
from hifi_cli.mesh_state.manage_api import ManageApi


async def hifi(
    managed: Managed, folder: Path, command: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Run a command on a folder of pipes by the API."""
    token = folder.parent / "token"
    token.write_text(managed.tokens["ann"])
    url = managed.urls[0].removesuffix("/api/v1")
    settings = {"HIFI_MANAGE_URL": url, "HIFI_MANAGE_TOKEN_FILE": str(token)}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("hifi"), command, folder, "--quick", "--json", *options],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return await asyncio.to_thread(run)


async def test_apply_declares_by_file_and_diff_shows_what_it_would_change(
    managed: Managed, tmp_path: Path
) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "flights.yaml").write_text(json.dumps(body("one")))
    diff = await hifi(managed, folder, "diff", "--exit-code")
    assert diff.returncode == 1, diff.stderr
    assert "+- name: one" in json.loads(diff.stdout)["flights"]
    first_apply = await hifi(managed, folder, "apply")
    assert json.loads(first_apply.stdout) == {"flights": {"change": "new"}}, first_apply.stderr
    declaration = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]
    assert (declaration["origin"], declaration["author"]) == ("file", "ann")
    assert json.loads((await hifi(managed, folder, "diff", "--exit-code")).stdout) == {}
    assert json.loads((await hifi(managed, folder, "apply")).stdout) == {"flights": {"change": "unchanged"}}

    (folder / "flights.yaml").write_text(json.dumps(body("two")))
    (folder / "trains.yaml").write_text(json.dumps(body("x", "trains")))
    second_apply = await hifi(managed, folder, "apply")
    assert json.loads(second_apply.stdout) == {"flights": {"change": "changed"}, "trains": {"change": "new"}}
    (folder / "trains.yaml").unlink()
    last_apply = await hifi(managed, folder, "apply", "--delete-missing")
    assert json.loads(last_apply.stdout) == {
        "flights": {"change": "unchanged"},
        "trains": {"change": "deleted"},
    }
    assert [pipe["pipe"] for pipe in (await managed.call(0, "GET", "/pipes")).content["pipes"]] == ["flights"]


@pytest.mark.more
async def test_apply_declares_again_what_was_rolled_back(managed: Managed, tmp_path: Path) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "flights.yaml").write_text(json.dumps(body("one")))
    assert (await hifi(managed, folder, "apply")).returncode == 0
    first_number = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]["number"]
    status = RolloutStatus("flights", first_number, "ann", RolloutState.ROLLED_BACK, 1, 0, "worse", 1)
    await managed.write(managed.control.rollouts, status.record())
    await managed.until(0, "POST", "/pipes/flights/rollout/pause", 409)  # the rollout has ended
    assert json.loads((await hifi(managed, folder, "apply")).stdout) == {"flights": {"change": "again"}}
    view = (await managed.call(0, "GET", "/pipes/flights")).content
    assert view["declared"]["number"] > first_number
    assert view["rollout"]["state"] == "waiting"
    assert json.loads((await hifi(managed, folder, "apply")).stdout) == {"flights": {"change": "unchanged"}}


async def test_apply_does_not_overwrite_what_somebody_changed_since_it_read(
    managed: Managed, tmp_path: Path
) -> None:
    creation = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    token = tmp_path / "token"
    token.write_text(managed.tokens["ann"])
    api = ManageApi(managed.urls[0].removesuffix("/api/v1"), token)
    read_state = await asyncio.to_thread(api.pipe, "flights")
    assert (await managed.call(0, "PUT", "/pipes/flights", body("two"), creation.etag)).status == 200
    changed_pipe = Pipe.model_validate(body("three"))
    with pytest.raises(HifiError, match="ann changed flights"):
        await asyncio.to_thread(api.change, "flights", changed_pipe, read_state)
    stored_body = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]["body"]
    assert stored_body["destinations"][0]["name"] == "two"
