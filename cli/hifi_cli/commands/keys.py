"""hifi keys: write keys that are issued beside those in pipe files."""

import asyncio
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from hifi.kafka.last_uses import LastUses
from hifi.kafka.visit import answering, read_topics, write_records
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, issued_key, key_revocation, new_key, rotated
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


class _Rotation(NamedTuple):
    """The id of a key that another one replaces, and the state of each mesh in which it was read."""

    key: str
    states: list[_State]


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
    key_before = await _of_same_pipe(targets, write_key, key_file)
    await _write("issue the write key", targets, {write_key.id: key_before}, [write_key], data, kafka, stream)
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
    rotation = _Rotation(key, [await _read(target) for target in targets])
    key_before = _to_rotate(rotation)
    key_after, expiring_key = rotated(
        key_before,
        await asyncio.to_thread(_read_or_make, key_file),
        duration_s("--overlap", overlap, may_be_zero=True),
        author(),
        now_us(),
    )
    await _write(
        "rotate the write key",
        targets,
        {key: key_before.json(), key_after.id: await _of_same_pipe(targets, key_after, key_file)},
        [key_after, expiring_key],
        data,
        kafka,
        stream,
        rotation,
    )
    _say(
        f"Issued {key_after.id} for {key_after.pipe}; {key} expires in {overlap}; the new key is in {key_file}."
    )


@app.command()
@report_errors
async def revoke(key: KeyId, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None) -> None:
    """Revoke a write key: ingest refuses it within seconds.

    Examples:
      hifi keys revoke 3f2a91c04be7
    """
    targets = _targets(data, kafka, stream)
    key_before = await _of_id(targets, key)
    await _write("revoke the write key", targets, {key: key_before.json()}, [], data, kafka, stream)
    _say(f"Revoked {key} of {key_before.pipe}.")


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


def _to_rotate(rotation: _Rotation) -> IssuedKey:
    """The key, also one that only one colour has, because the other did not answer when it was issued.

    Raises:
        Misconfigured: there is none, or one colour did not answer when it was revoked.
    """
    key, states = rotation
    issued_keys = [state.keys.by_id[key] for state in states if key in state.keys.by_id]
    if not issued_keys:
        raise _unknown_key(key)
    if any(key not in state.keys.by_id and state.keys.revoked_at(key) is not None for state in states):
        raise Misconfigured(
            f"{key} was revoked in one colour, and the other did not answer: run `hifi keys revoke {key}` again, and "
            "issue a new key"
        )
    return issued_keys[0]


async def _of_id(targets: list[Target], key: str) -> IssuedKey:
    """The key, also one that only one colour has, because the other did not answer when it was issued or revoked."""
    for target in targets:
        if (write_key := (await _read(target)).keys.by_id.get(key)) is not None:
            return write_key
    raise _unknown_key(key)


def _unknown_key(key: str) -> Misconfigured:
    return Misconfigured(f"there is no issued key {key}; `hifi keys list` lists those that exist")


async def _of_same_pipe(targets: list[Target], write_key: IssuedKey, key_file: Path) -> object:
    """The key that another one replaces, since both have the same text, for the audit; None: there is none.

    Raises:
        Misconfigured: it is one of another pipe, which would lose it.
    """
    key_before = None
    for target in targets:
        issued = (await _read(target)).keys.by_id.get(write_key.id)
        if issued is not None and issued.pipe != write_key.pipe:
            raise Misconfigured(f"the key in {key_file} is one of the pipe {issued.pipe}; give each its own")
        key_before = issued or key_before
    return key_before and key_before.json()


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
    rotation: _Rotation | None = None,
) -> None:
    """Write keys to all targets, between the entries of the audit; an id of `before` that has no key is revoked.

    Raises:
        Misconfigured: somebody revoked the key of the rotation meanwhile: the revocation wins, and the rotation is
            undone.
        Retryable: Kafka does not answer.
    """
    keys_by_id = {issued.id: issued for issued in keys}
    records = [
        keys_by_id[identity].record() if identity in keys_by_id else key_revocation(identity)
        for identity in before
    ]
    audit = audit_topics(data, kafka, stream)
    subjects = {f"write-key/{identity}": old_key for identity, old_key in before.items()}
    async with audit.audited(action, subjects) as values_after:
        await _append(targets, records)
        if rotation is not None and await _is_revoked_since(rotation, targets):
            await _append(targets, [key_revocation(identity) for identity in keys_by_id])
            raise Misconfigured(f"somebody revoked {rotation.key} meanwhile: no key was issued")
        values_after |= {f"write-key/{identity}": issued.json() for identity, issued in keys_by_id.items()}


async def _append(targets: list[Target], records: list[Record]) -> None:
    for target in targets:
        async with answering(f"Kafka at {target.kafka} does not answer"):
            await write_records(target.kafka, _CLIENT, (target.topics.write_keys, records))


async def _is_revoked_since(rotation: _Rotation, targets: list[Target]) -> bool:
    """Whether somebody has revoked the key in any mesh since it was read."""
    key, states = rotation
    revoked_before = [state.keys.revoked_at(key) for state in states]
    return [(await _read(target)).keys.revoked_at(key) for target in targets] != revoked_before


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
