"""The OpenID Connect provider Keycloak, for tests: its distribution from Maven, with a pinned checksum."""

import asyncio
import contextlib
import hashlib
import html
import json
import os
import re
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urljoin

import aiohttp
import pytest
from jgo.maven import MavenContext
from requests import RequestException
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET

from hifi.spark.jars import user_cache_folder
from hifi_infra.java.jars import repositories
from hifi_infra.ports import free_port

PASSWORD: Final = "password-of-everybody"
_VERSION: Final = "26.7.3"
_SHA256: Final = "27a6535553c3cdcd083872ba40629efafb3475e3b758e0c6f691395561dd0f1f"
_READY_S: Final = 600
_GROUPS: Final = {
    "name": "groups",
    "protocol": "openid-connect",
    "protocolMapper": "oidc-group-membership-mapper",
    "config": {"claim.name": "groups", "full.path": "false", "id.token.claim": "true"},
}


@dataclass(frozen=True, slots=True)
class Keycloak:
    """A Keycloak that runs. `issuer` is the URL of its realm."""

    issuer: str


def distribution() -> Path:
    """The archive, which is downloaded once; skips where no repository is reached."""
    archive = user_cache_folder() / f"keycloak-{_VERSION}.zip"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=archive.parent) as part_folder:
            maven = MavenContext(repo_cache=Path(part_folder), remote_repos=repositories(), timeout=60)
            project = maven.project("org.keycloak", "keycloak-quarkus-dist").at_version(_VERSION)
            try:
                file = project.artifact(packaging="zip").resolve()
            except (RequestException, RuntimeError, OSError) as error:
                pytest.skip(f"Keycloak could not be downloaded: {error}")
            with file.open("rb") as content:
                assert hashlib.file_digest(content, "sha256").hexdigest() == _SHA256
            file.replace(archive)
    return archive


@contextlib.asynccontextmanager
async def running_keycloak(
    folder: Path, console: str, groups_of_people: Mapping[str, Sequence[str]]
) -> AsyncIterator[Keycloak]:
    """Run Keycloak with a realm `hifi`, whose client is a console.

    Args:
        folder: for its files; it must not exist.
        console: URL of the console.
        groups_of_people: name to names of groups.
    """
    with zipfile.ZipFile(distribution()) as archive:
        archive.extractall(folder)
    home = folder / f"keycloak-{_VERSION}"
    imported = home / "data" / "import"
    imported.mkdir(parents=True)
    (imported / "hifi-realm.json").write_text(json.dumps(_realm(console, groups_of_people)))
    port = free_port()
    command = [
        "start-dev",
        "--db=dev-mem",
        "--http-host=127.0.0.1",
        f"--http-port={port}",
        "--cache=local",
        "--import-realm",
    ]
    log = folder / "keycloak.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", str(home / "bin" / "kc.sh"), *command],
            env={
                **os.environ,
                "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
                "KC_BOOTSTRAP_ADMIN_PASSWORD": PASSWORD,
                "JAVA_OPTS_APPEND": "-Xmx512m",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        issuer = f"http://127.0.0.1:{port}/realms/hifi"
        async with asyncio.timeout(_READY_S), aiohttp.ClientSession() as session:
            while not await _answers(session, f"{issuer}/.well-known/openid-configuration"):
                assert process.poll() is None, log.read_text()
                await asyncio.sleep(0.5)
        yield Keycloak(issuer)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _realm(console: str, groups_of_people: Mapping[str, Sequence[str]]) -> dict[str, object]:
    return {
        "realm": "hifi",
        "enabled": True,
        "sslRequired": "none",
        "groups": [
            {"name": name} for name in sorted({name for names in groups_of_people.values() for name in names})
        ],
        "clients": [
            {
                "clientId": CLIENT_ID,
                "secret": CLIENT_SECRET,
                "redirectUris": [f"{console}/sign-in/oidc/callback"],
                "attributes": {"post.logout.redirect.uris": f"{console}/sign-in"},
                "protocolMappers": [_GROUPS],
            }
        ],
        "users": [
            {
                "username": person,
                "enabled": True,
                "email": f"{person}@example.org",
                "emailVerified": True,
                "firstName": person,
                "lastName": person,
                "groups": [f"/{name}" for name in names],
                "credentials": [{"type": "password", "value": PASSWORD}],
            }
            for person, names in groups_of_people.items()
        ],
    }


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url) as answer:
            return answer.status == 200
    except OSError:
        return False


async def answer_of_keycloak(browser: aiohttp.ClientSession, url: str, person: str) -> str:
    """Sign in on Keycloak's page as a person does; returns the URL to which it sends the browser back."""
    async with browser.get(url) as page:
        form_action = re.search(r'<form[^>]*action="([^"]+)"', await page.text())
        assert form_action is not None, await page.text()
    fields = {"username": person, "password": PASSWORD}
    target = urljoin(url, html.unescape(form_action[1]))
    async with browser.post(target, data=fields, allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        return answer.headers["location"]
