"""`hifi apply` and `hifi diff` by the real management API: by file, and never over a change of somebody else."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.manage.managed_stream import Managed, body

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
    shown = await hifi(managed, folder, "diff", "--exit-code")
    assert shown.returncode == 1, shown.stderr
    assert "+- name: one" in json.loads(shown.stdout)["flights"]
    done = await hifi(managed, folder, "apply")
    assert json.loads(done.stdout) == {"flights": {"change": "new"}}, done.stderr
    declared = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]
    assert (declared["origin"], declared["author"]) == ("file", "ann")
    assert json.loads((await hifi(managed, folder, "diff", "--exit-code")).stdout) == {}
    assert json.loads((await hifi(managed, folder, "apply")).stdout) == {"flights": {"change": "unchanged"}}

    (folder / "flights.yaml").write_text(json.dumps(body("two")))
    (folder / "trains.yaml").write_text(json.dumps(body("x", "trains")))
    changed = await hifi(managed, folder, "apply")
    assert json.loads(changed.stdout) == {"flights": {"change": "changed"}, "trains": {"change": "new"}}
    (folder / "trains.yaml").unlink()
    deleted = await hifi(managed, folder, "apply", "--delete-missing")
    assert json.loads(deleted.stdout) == {"flights": {"change": "unchanged"}, "trains": {"change": "deleted"}}
    assert [pipe["pipe"] for pipe in (await managed.call(0, "GET", "/pipes")).content["pipes"]] == ["flights"]


async def test_apply_does_not_overwrite_what_somebody_changed_since_it_read(
    managed: Managed, tmp_path: Path
) -> None:
    first = await managed.call(0, "PUT", "/pipes/flights", body("one"), {"if-none-match": "*"})
    token = tmp_path / "token"
    token.write_text(managed.tokens["ann"])
    api = ManageApi(managed.urls[0].removesuffix("/api/v1"), token)
    read = await asyncio.to_thread(api.pipe, "flights")
    assert (await managed.call(0, "PUT", "/pipes/flights", body("two"), first.etag)).status == 200
    changed = Pipe.model_validate(body("three"))
    with pytest.raises(HifiError, match="ann changed flights"):
        await asyncio.to_thread(api.change, "flights", changed, read)
    kept = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]["body"]
    assert kept["destinations"][0]["name"] == "two"
