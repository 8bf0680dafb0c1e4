"""hifi keys: write keys that are issued beside those in pipe files."""

import asyncio
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from hifi.kafka.last_uses import LastUses
from hifi.kafka.visit import answering, read_topics, write_records
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key, new_key, rotated
from hifi.pipe.registry import read_registry
from hifi.record.record import Record
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import utc_time
from hifi_cli.error_reporting import report_errors
from hifi_cli.expiry import duration_s
from hifi_cli.mesh_state.audited_command import author
from hifi_cli.mesh_state.target import Target, audit_topics, kafka_targets
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_infra.kafka.first_principal import write_token

app = typer.Typer(help="Issue, rotate, revoke and list write keys.")
_CLIENT = "hifi-keys"
PipeName = Annotated[str, typer.Argument(metavar="PIPE", help="Name of the pipe.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="Id of the key, as `hifi keys list` shows it.")]
KeyFile = Annotated[
    Path,
    typer.Option("--key-file", metavar="FILE", help="New file for the key, or a file that has it already."),
]


class _State(NamedTuple):
    """The issued keys of a stream, and their uses."""

    keys: IssuedKeys
    uses: LastUses


@app.command()
@report_errors
async def issue(
    pipe: PipeName,
    key_file: KeyFile,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", metavar="URL", help="Only for pages of this origin. Can be repeated."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="DURATION", help="Time until it expires, such as 90d.")
    ] = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Issue a write key of a pipe; ingest accepts it within seconds. Only a hash is stored.

    Examples:
      hifi keys issue orders --key-file shop.key
      hifi keys issue clicks --origin https://shop.example --expires 90d --key-file page.key
    """
    targets, time_us = _targets(data, kafka, stream), now_us()
    await _require_published(targets, pipe)
    expires_us = None if expires is None else time_us + int(duration_s("--expires", expires) * MICROSECONDS)
    write_key = issued_key(
        await asyncio.to_thread(_read_or_make, key_file),
        pipe,
        origins=origin or (),
        expires_us=expires_us,
        author=author(),
        at_us=time_us,
    )
    for target in targets:
        before = (await _read(target)).keys.by_id.get(write_key.id)
        if before is not None and before.pipe != pipe:
            raise Misconfigured(f"the key in {key_file} is one of the pipe {before.pipe}; give each its own")
    await _write("issue the write key", targets, {write_key.id: None}, [write_key], data, kafka, stream)
    _say(f"Issued {write_key.id} for {pipe}; the key is in {key_file}.")


@app.command()
@report_errors
async def rotate(
    key: KeyId,
    key_file: KeyFile,
    overlap: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the key before goes on, such as 7d.")
    ] = "7d",
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Issue a key for the same pipe and origins, and let the one before expire after the overlap.

    Examples:
      hifi keys rotate 3f2a91c04be7 --overlap 2d --key-file shop-2.key
    """
    targets = _targets(data, kafka, stream)
    before = await _of_id(targets, key)
    after, expiring_key = rotated(
        before,
        await asyncio.to_thread(_read_or_make, key_file),
        duration_s("--overlap", overlap, may_be_zero=True),
        author(),
        now_us(),
    )
    await _write(
        "rotate the write key",
        targets,
        {key: before.json(), after.id: None},
        [after, expiring_key],
        data,
        kafka,
        stream,
    )
    _say(f"Issued {after.id} for {after.pipe}; {key} expires in {overlap}; the new key is in {key_file}.")


@app.command()
@report_errors
async def revoke(key: KeyId, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None) -> None:
    """Revoke a write key: ingest refuses it within seconds.

    Examples:
      hifi keys revoke 3f2a91c04be7
    """
    targets = _targets(data, kafka, stream)
    before = await _of_id(targets, key)
    await _write("revoke the write key", targets, {key: before.json()}, [], data, kafka, stream)
    _say(f"Revoked {key} of {before.pipe}.")


@app.command("list")
@report_errors
async def list_keys(
    pipe: Annotated[str | None, typer.Argument(metavar="PIPE", help="Of this pipe only.")] = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List the issued write keys: pipe, origins, when they expire and were used last.

    Examples:
      hifi keys list orders
    """
    states = [await _read(target) for target in _targets(data, kafka, stream)]
    by_id = {identity: write_key for state in states for identity, write_key in state.keys.by_id.items()}
    issued_keys = [write_key for write_key in by_id.values() if pipe in (None, write_key.pipe)]
    issued_keys.sort(key=lambda write_key: (write_key.pipe, write_key.at_us))
    rows = []
    for write_key in issued_keys:
        use_times_us = [state.uses.at_us(write_key.id, write_key.at_us) for state in states]
        rows.append(write_key.json(max(filter(None, use_times_us), default=None)))
    if as_json:
        print_json(rows)
        return
    listing = table("id", "pipe", "origins", "expires", "last used", "issued by")
    for row in rows:
        listing.add_row(
            row["id"],
            row["pipe"],
            ", ".join(row["origins"]) or "programs",
            utc_time(row["expires_us"]),
            utc_time(row["last_used_us"]),
            row["author"],
        )
    print_table(listing, console)


def _targets(data: Path, kafka: str | None, stream: str | None) -> list[Target]:
    """The mesh, or both colours, which have the same keys."""
    return list(kafka_targets(data, kafka, stream).values())


async def _require_published(targets: list[Target], pipe: str) -> None:
    for target in targets:
        revision = (await read_registry(target.kafka, target.topics)).pipes.get(pipe)
        if revision is None or revision.pipe.source.kind != "http":
            raise Misconfigured(f"no pipe {pipe} with a source of the kind `http` is published")


async def _of_id(targets: list[Target], key: str) -> IssuedKey:
    """The key, also one that only one colour has, because the other did not answer when it was issued or revoked."""
    for target in targets:
        if (write_key := (await _read(target)).keys.by_id.get(key)) is not None:
            return write_key
    raise Misconfigured(f"there is no issued key {key}; `hifi keys list` lists those that exist")


async def _read(target: Target) -> _State:
    state, topics = _State(IssuedKeys(), LastUses()), target.topics
    async with answering(f"Kafka at {target.kafka} does not answer, or has no topic {topics.write_keys}"):
        await read_topics(
            target.kafka, _CLIENT, {topics.write_keys: state.keys.take, topics.key_uses: state.uses.take}
        )
    return state


async def _write(
    action: str,
    targets: list[Target],
    before: dict[str, object],
    keys: list[IssuedKey],
    data: Path,
    kafka: str | None,
    stream: str | None,
) -> None:
    """Write keys to all targets, between the entries of the audit; an id of `before` that has no key is revoked."""
    keys_by_id = {issued.id: issued for issued in keys}
    records = [
        keys_by_id[identity].record() if identity in keys_by_id else Record(identity.encode(), None, [])
        for identity in before
    ]
    audit = audit_topics(data, kafka, stream)
    subjects = {f"write-key/{identity}": old_key for identity, old_key in before.items()}
    async with audit.audited(action, subjects) as after:
        for target in targets:
            async with answering(f"Kafka at {target.kafka} does not answer"):
                await write_records(target.kafka, _CLIENT, (target.topics.write_keys, records))
        after |= {f"write-key/{identity}": issued.json() for identity, issued in keys_by_id.items()}


def _read_or_make(file: Path) -> str:
    if not file.exists():
        key = new_key()
        write_token(file, key)
        return key
    try:
        return file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"--key-file {file} cannot be read: {error}") from None


def _say(text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True)
