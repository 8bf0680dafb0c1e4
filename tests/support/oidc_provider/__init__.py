"""The OpenID Connect provider `oidc-provider` of npm, for tests: installed once a session, with pinned versions."""

import contextlib
import html
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
import pytest

from hifi_infra.ports import free_port

_FOLDER: Final = Path(__file__).parent
_INSTALL_S: Final = 180
CLIENT_ID: Final = "hifi"
CLIENT_SECRET: Final = "secret-of-the-client"
PUBLIC_CLIENT_ID: Final = "hifi-without-a-secret"


def installed_provider(folder: Path) -> Path:
    """Install the provider into a folder, with the versions and hashes of package-lock.json; skips where npm cannot."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm, for the OpenID Connect provider, are not on this machine")
    for name in ("package.json", "package-lock.json", "provider.mjs"):
        shutil.copy(_FOLDER / name, folder)
    completed = subprocess.run(
        [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=False,
    )
    unreachable = re.search(r"ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|network", completed.stderr)
    if completed.returncode and unreachable:
        pytest.skip(f"npm reaches no registry: {unreachable[0]}")
    assert completed.returncode == 0, completed.stderr
    return folder


@dataclass(frozen=True, slots=True)
class RunningProvider:
    """A provider that runs.

    Attributes:
        issuer: its URL.
        console: URL of its client.
    """

    issuer: str
    console: str

    async def rotate(self) -> None:
        """Replace its keys; the ones before are withdrawn."""
        async with aiohttp.ClientSession() as session, session.post(f"{self.issuer}/test/rotate") as answer:
            assert answer.status == 200


@contextlib.contextmanager
def running_provider(folder: Path, console: str, port: int = 0) -> Iterator[RunningProvider]:
    """Run a provider whose client is a console.

    Args:
        folder: in which it is installed.
        console: URL of the console.
        port: 0: any free one.
    """
    port = port or free_port()
    process = subprocess.Popen(
        [
            *("node", "provider.mjs", str(port), CLIENT_ID, CLIENT_SECRET, PUBLIC_CLIENT_ID),
            *(f"{console}/sign-in/oidc/callback", f"{console}/sign-in"),
            f"{console}/sign-in/oidc/backchannel-logout",
        ],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while b"listening" not in (line := process.stdout.readline()):
            assert line, "the provider ended"
        yield RunningProvider(f"http://127.0.0.1:{port}", console)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def answer_of_provider(browser: aiohttp.ClientSession, url: str, login: str) -> str:
    """Sign in on the provider's pages as a person does; returns the URL to which it sends the browser back.

    Args:
        browser: with cookies.
        url: to which the console sends the browser.
        login: name, and after `@` the groups with `+` between them.
    """
    form_fields: dict[str, str] | None = None
    for _ in range(12):
        method = "GET" if form_fields is None else "POST"
        async with browser.request(method, url, data=form_fields, allow_redirects=False) as answer:
            text = await answer.text()
        form_fields = None
        if location := answer.headers.get("location"):
            url = urljoin(url, location)
            if "/sign-in/oidc/callback" in url:
                return url
        elif action := re.search(r'<form[^>]* action="([^"]+)"', text):
            url = urljoin(url, html.unescape(action[1]))
            prompt = re.search(r'name="prompt" value="(\w+)"', text)
            assert prompt is not None, text
            form_fields = {"prompt": prompt[1], "login": login, "password": "any"}
        else:
            break
    raise AssertionError(f"{answer.status} at {url}: {text}")
