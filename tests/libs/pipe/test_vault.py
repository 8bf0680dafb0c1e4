"""Secrets in Vault: read with the operator's settings, kept while Vault is away, granted by path. Vault is a double."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.support.vault_double import VaultDouble, forget_secrets, running_vault

from hifi.pipe.limit_check import refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.loader import load
from hifi.pipe.model import Pipe
from hifi.pipe.secret import Secret, WriteKey
from hifi.pipe.secret_manager import MOST, SecretMemory, secret_memory
from hifi.pipe.secret_wait import wait_for_secrets
from hifi.pipe.vault import Vault, VaultSettings
from hifi.runtime import metrics
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.health import Health

WITHIN_S = 20


@pytest.fixture
async def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[VaultDouble]:
    """A double that the settings of this process name."""
    async with running_vault() as double:
        (tmp_path / "token").write_text("a-token\n")
        monkeypatch.setenv("HIFI_VAULT_ADDRESS", double.url)
        monkeypatch.setenv("HIFI_VAULT_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("HIFI_VAULT_REFRESH_S", "0.05")
        forget_secrets()
        double.write("crm/webhook", token="s3cret")
        yield double


async def read(name: str = "crm/webhook#token") -> str:
    return await asyncio.to_thread(Secret(vault=name).read)


def not_read() -> float:
    return next(iter(metrics.SECRETS_NOT_READ.collect())).samples[0].value


async def until_read(value: str | None) -> None:
    """Until a secret has a value; None: until it is refused."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                current: str | None = await read()
            except Misconfigured:
                current = None
            if current == value:
                return
            await asyncio.sleep(0.02)


def declared(section: dict[str, Any], name: str = "crm-orders") -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": "KEY"}]},
            "destinations": [{"name": "d", "url": "https://shop.example/"}],
            **section,
        }
    )


async def test_a_secret_is_read_by_the_operators_settings_with_one_request(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.mount, vault.namespace = "kv/apps", "team-a/"
    monkeypatch.setenv("HIFI_VAULT_MOUNT", "/kv/apps/")
    monkeypatch.setenv("HIFI_VAULT_NAMESPACE", "team-a/")
    monkeypatch.setenv("HIFI_VAULT_REFRESH_S", "60")
    assert [await read(), await read()] == ["s3cret", "s3cret"]
    ((path, headers),) = vault.requests
    assert path == "/v1/kv/apps/data/crm/webhook"
    assert (headers["X-Vault-Token"], headers["X-Vault-Request"]) == ("a-token", "true")
    key = await asyncio.to_thread(WriteKey(vault="crm/webhook#token").digest)
    assert key == WriteKey(sha256=key).digest()


async def test_a_rotated_secret_is_read_within_seconds_and_its_version_is_the_newest(
    vault: VaultDouble,
) -> None:
    assert await read() == "s3cret"
    vault.write("crm/webhook", token="n3xt\n")
    await until_read("n3xt")


@pytest.mark.slow
@pytest.mark.parametrize("outage", ["sealed", "error", "token", "html"])
async def test_the_value_read_last_is_kept_while_vault_is_away(vault: VaultDouble, outage: str) -> None:
    assert await read() == "s3cret"
    vault.sealed = outage == "sealed"
    vault.answer = {"error": (500, '{"errors": ["internal"]}'), "html": (502, "<html>")}.get(outage)
    tokens = dict(vault.tokens)
    if outage == "token":
        vault.tokens.clear()
    async with asyncio.timeout(WITHIN_S):
        while not not_read():
            await asyncio.sleep(0.02)
    assert await read() == "s3cret"
    with pytest.raises(Misconfigured, match="Vault at"):  # one that was never read
        await read("crm/other#token")
    vault.write("crm/other", token="0ther")
    vault.write("crm/webhook", token="n3xt")
    vault.sealed, vault.answer = False, None
    vault.tokens |= tokens
    await until_read("n3xt")
    async with asyncio.timeout(WITHIN_S):
        while not_read():
            await asyncio.sleep(0.02)
    assert await read("crm/other#token") == "0ther"


@pytest.mark.parametrize("withdrawal", ["deleted", "forbidden", "field"])
async def test_a_secret_that_is_withdrawn_is_not_returned_any_more(
    vault: VaultDouble, withdrawal: str
) -> None:
    assert await read() == "s3cret"
    if withdrawal == "deleted":
        vault.delete("crm/webhook")
    elif withdrawal == "forbidden":
        vault.tokens["a-token"] = {"other/"}
    else:
        vault.write("crm/webhook", another="s3cret")
    await until_read(None)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("crm/none#token", {}, "Vault has no secret secret/crm/none; write it"),
        ("crm/webhook#none", {}, "secret/crm/webhook has no text in the field none"),
        ("crm/webhook#token", {"tokens": {"a-token": {"x/"}}}, "`read` on secret/data/crm/webhook"),
        ("crm/webhook#token", {"mount": "kv"}, "has no secret secret/crm/webhook .*no handler for route"),
        ("crm/webhook#token", {"namespace": "b/"}, "no handler for route"),
        ("crm/webhook#token", {"answer": (405, "")}, "refuses to read secret.*, 405"),
        (
            "crm/webhook#token",
            {"answer": (200, '{"data": {"token": "x"}}')},
            "not that of a KV secrets engine",
        ),
    ],
)
async def test_what_vault_refuses_is_named_with_its_remedy(
    vault: VaultDouble, name: str, change: dict[str, Any], message: str
) -> None:
    for attribute, value in change.items():
        setattr(vault, attribute, value)
    with pytest.raises(Misconfigured, match=message) as raised:
        await read(name)
    assert "s3cret" not in str(raised.value)


async def test_a_deleted_version_is_named_by_its_number(vault: VaultDouble) -> None:
    vault.write("crm/webhook", token="n3xt")
    vault.delete("crm/webhook")
    with pytest.raises(Misconfigured, match="version 2 of Vault's secret secret/crm/webhook was deleted"):
        await read()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sealed": True}, "answers 503 for secret/crm/webhook: Vault is sealed"),
        ({"tokens": {}}, "does not accept the token in .*token"),
        ({"answer": (429, "")}, "answers 429"),
        ({"answer": (400, '{"errors": ["bad"]}')}, "answers 400"),
        ({"answer": (412, "")}, "answers 412"),
        ({"answer": (473, "")}, "answers 473"),
        ({"answer": (307, "")}, "answers 307"),
        ({"answer": (500, '{"errors": "x"}')}, "answers 500"),
        ({"delay_s": 1}, "timed out"),
    ],
)
async def test_what_says_nothing_about_the_secret_is_tried_again(
    vault: VaultDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr("hifi.pipe.vault._TIMEOUT_S", 0.3)
    for attribute, value in change.items():
        setattr(vault, attribute, value)
    client = Vault(VaultSettings(address=vault.url, token_file=tmp_path / "token"))
    with pytest.raises(Retryable, match=message):
        await asyncio.to_thread(client.read, "crm/webhook#token")


@pytest.mark.parametrize("token", [None, "", "a\nb: c", "töken"])
async def test_a_token_that_cannot_be_read_or_sent_is_not_shown(
    vault: VaultDouble, tmp_path: Path, token: str | None
) -> None:
    (tmp_path / "token").unlink()
    if token is not None:
        (tmp_path / "token").write_text(token)
    client = Vault(VaultSettings(address=vault.url, token_file=tmp_path / "token"))
    with pytest.raises(Retryable) as raised:
        await asyncio.to_thread(client.read, "crm/webhook#token")
    assert not token or token not in str(raised.value)


async def test_a_start_without_vault_waits_says_so_and_goes_on_when_it_answers(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "crm-*=vault:crm")
    monkeypatch.setattr("hifi.pipe.secret_wait._LOOK_S", 0.02)
    vault.sealed = True
    health = Health("egest", "egest-1")
    pipe = declared(
        {
            "destinations": [
                {"name": "d", "url": "https://a.example/", "headers": {"x": {"vault": "crm/webhook#token"}}},
                {"name": "e", "url": "https://a.example/", "headers": {"x": {"vault": "crm/none#token"}}},
                {"name": "f", "url": "https://a.example/", "headers": {"x": {"vault": "foreign/x#token"}}},
            ]
        }
    )
    waiting = asyncio.create_task(wait_for_secrets([pipe], ("destinations",), health))
    async with asyncio.timeout(WITHIN_S):
        while "Vault is sealed" not in health.waiting.get("secrets", ""):
            await asyncio.sleep(0.01)
    assert not waiting.done()
    await wait_for_secrets(
        [pipe], ("source", "normalize"), Health("ingest", "ingest-1")
    )  # reads none of them
    vault.sealed = False
    async with asyncio.timeout(WITHIN_S):
        await waiting
    assert health.ready
    assert await read() == "s3cret"
    assert not [path for path, _ in vault.requests if "foreign" in path]  # not granted, so never asked for


async def test_a_start_waits_a_while_for_secrets_for_which_vault_fails_alone(
    vault: VaultDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "crm-*=vault:crm")
    monkeypatch.setattr("hifi.pipe.secret_wait._LOOK_S", 0.02)
    monkeypatch.setattr("hifi.pipe.secret_wait._OTHERS_ANSWERED_S", 0.2)
    vault.failing = {f"crm/a{number}" for number in range(5)}
    headers = {
        "x": {"vault": "crm/webhook#token"},
        **{f"x{number}": {"vault": f"crm/a{number}#token"} for number in range(5)},
    }
    pipe = declared({"destinations": [{"name": "d", "url": "https://a.example/", "headers": headers}]})
    health = Health("egest", "egest-1")
    async with asyncio.timeout(WITHIN_S):
        await wait_for_secrets([pipe], ("destinations",), health)
    assert health.ready
    assert await read() == "s3cret"
    vault.write("crm/webhook", token="n3xt")
    await until_read("n3xt")
    with pytest.raises(Misconfigured, match="answers 500 for secret/crm/a4"):
        await read("crm/a4#token")
    vault.failing.clear()
    vault.write("crm/a4", token="0ther")
    async with asyncio.timeout(WITHIN_S):
        while await asyncio.to_thread(secret_memory().missing, ["crm/a4#token"]):
            await asyncio.sleep(0.02)
    assert await read("crm/a4#token") == "0ther"


async def test_a_start_does_not_wait_where_no_vault_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_secrets()
    monkeypatch.delenv("HIFI_VAULT_ADDRESS", raising=False)
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "*=vault:crm")
    pipe = declared({"source": {"keys": [{"vault": "crm/k#v"}]}})
    async with asyncio.timeout(WITHIN_S):
        await wait_for_secrets([pipe], ("source",), Health("ingest", "ingest-1"))
    with pytest.raises(Misconfigured, match="set HIFI_VAULT_ADDRESS and HIFI_VAULT_TOKEN_FILE"):
        Secret(vault="crm/k#v").read()


class Manager:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.away = False
        self.asked: list[str] = []

    def read(self, name: str) -> str:
        self.asked.append(name)
        if self.away:
            raise Retryable("away")
        return f"{name}'s value"


def test_memory_is_bounded_and_asks_a_manager_that_is_away_once() -> None:
    manager = Manager()
    memory = SecretMemory(manager)
    for number in range(MOST + 5):
        memory.get(f"p#{number}")
    manager.asked.clear()
    memory.refresh()
    assert len(manager.asked) == MOST
    manager.away = True
    manager.asked.clear()
    memory.refresh()
    assert len(manager.asked) == 3  # not a timeout for each of a thousand
    for number in range(50):
        with pytest.raises(Misconfigured, match="away"):
            memory.get(f"new#{number}")
    assert len(manager.asked) == 3  # the event loop does not wait for each
    assert memory.get("p#900") == "p#900's value"
    manager.away = False
    memory.refresh()
    assert memory.get("new#1") == "new#1's value"


@pytest.mark.parametrize(
    ("name", "is_refused"),
    [
        ("crm/webhook#token", False),
        ("crm/webhook/deeper#token", False),
        ("crm/webhooks#token", True),
        ("crm#token", True),
        ("other/webhook#token", True),
    ],
)
def test_a_pipe_names_only_paths_below_its_grant(
    monkeypatch: pytest.MonkeyPatch, name: str, *, is_refused: bool
) -> None:
    monkeypatch.setenv(
        "HIFI_PIPES_SECRET_GRANTS", "crm-*=vault:crm/webhook,crm-*=*,crm-*=/,other=vault:other"
    )
    destinations = [{"name": "d", "url": "https://a.example/", "headers": {"x": {"vault": name}}}]
    pipe = declared({"destinations": destinations})
    problems = [reason for _, reason in refusals(pipe, pipe_limits())]
    assert bool(problems) is is_refused
    assert not problems or "is not granted to the pipe crm-orders" in problems[0]
    monkeypatch.delenv("HIFI_PIPES_SECRET_GRANTS")
    assert [reason for _, reason in refusals(pipe, pipe_limits())]  # without grants, none


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ({"source": {"keys": [{"vault": "a/b#c"}]}}, ("source", "keys", 0)),
        (
            {"source": {"keys": [{"env": "K"}], "mask": {"data": {"n": {"hash": {"vault": "a/b#c"}}}}}},
            ("source", "mask", "data", "n", "hash"),
        ),
        ({"normalize": {"mask": {"n": {"hash": {"vault": "a/b#c"}}}}}, ("normalize", "mask", "n", "hash")),
        (
            {
                "destinations": [
                    {"name": "d", "kind": "postgres", "settings": {"url": {"vault": "a/b#c"}, "table": "t"}}
                ]
            },
            ("destinations", 0, "settings", "url"),
        ),
    ],
)
def test_grants_of_paths_hold_in_each_part_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "crm-orders=vault:b,crm-orders=K*")
    problems = [
        key_path for key_path, reason in refusals(declared(section), pipe_limits()) if "granted" in reason
    ]
    assert problems == [path]


@pytest.mark.parametrize(
    "name",
    ["", "a", "#b", "a#", "/a#b", "a/#b", "a//b#c", "a/../b#c", "../a#b", "a/.b#c", "a#b#c", "a?x=1#b", "a%2fb#c",
     "a b#c", "a#b/c", "http://h/a#b", "a\n#b", "a:8200/b#c", "ä#b", "a/b#c\n", "x" * 512 + "#b"],
)  # fmt: skip
def test_a_name_is_a_plain_path_and_field(name: str) -> None:
    with pytest.raises(ValidationError):
        Secret.model_validate({"vault": name})


def test_a_name_that_is_wrong_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "pipe: p\nsource:\n  keys:\n    - vault: ../sys/raw#x\ndestinations:\n  - {name: d, url: https://a.example/}\n"
    )
    _, problems = load(tmp_path)
    assert [(problem.line, problem.where) for problem in problems] == [(4, "source.keys[0].vault")]


@pytest.mark.parametrize(
    "settings",
    [
        {"address": "vault.internal:8200", "token_file": "/t"},
        {"address": "ftp://vault", "token_file": "/t"},
        {"address": "https://user:pass@vault", "token_file": "/t"},
        {"address": "https://vault"},
        {"address": "https://vault", "token_file": "/t", "refresh_s": 0},
    ],
)
def test_settings_that_are_wrong_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        VaultSettings.model_validate(settings)


def test_the_token_is_no_secret_of_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("a-token")
    monkeypatch.setenv("HIFI_VAULT_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(Misconfigured, match="credential of hifi"):
        Secret(file=tmp_path / "token").read()
