"""hifi principal: who may use observe and the management API."""

from pathlib import Path
from typing import Annotated

import typer

from hifi.control.principals import principal_store
from hifi.control.principals.principal import Role, new_token
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console, errors, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.units import utc_time
from hifi_cli.error_reporting import report_errors
from hifi_cli.expiry import duration_s
from hifi_cli.mesh_state.audited_command import author
from hifi_cli.mesh_state.target import audit_topics
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_infra.kafka.first_principal import write_token

app = typer.Typer(help="Create, revoke and list those who may use observe and the management API.")
PrincipalName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the person or the program.")]


@app.command()
@report_errors
async def create(
    name: PrincipalName,
    role: Annotated[
        Role,
        typer.Option(
            "--role",
            help="viewer: read; data-viewer: also data of dead letters; operator: also replay, silence and steer; "
            "admin: also declare and delete pipes.",
        ),
    ],
    token_file: Annotated[
        Path, typer.Option("--token-file", metavar="FILE", help="New file for the token, with mode 0600.")
    ],
    pipe: Annotated[
        list[str] | None,
        typer.Option("--pipe", metavar="PIPE", help="Limit the role to this pipe. Can be repeated."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DURATION", help="Time until the token expires, such as 30d."),
    ] = None,
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
) -> None:
    """Create a principal and write its token to a file; if it exists, replace it and its token.

    Only a hash of the token is stored. Needs access to Kafka.

    Examples:
      hifi principal create ann --role admin --token-file ann.token
      hifi principal create ci --role admin --pipe flights --expires 90d --token-file ci.token
    """
    control = audit_topics(data, kafka, stream)
    if token_file.exists():
        raise Misconfigured(f"{token_file} exists; name a new file with --token-file")
    time_us = now_us()
    expires_us = None if expires is None else time_us + int(duration_s("--expires", expires) * MICROSECONDS)
    token = new_token()
    write_token(token_file, token)  # first: the token before it must not be replaced by one that nobody has
    try:
        await principal_store.create_principal(
            control.kafka,
            control.topics,
            name,
            role,
            author=author(),
            at_us=time_us,
            pipes=tuple(pipe or ()),
            expires_us=expires_us,
            token=token,
        )
    except Misconfigured:
        token_file.unlink(missing_ok=True)
        raise
    except BaseException:  # also Ctrl-C: the record may be written
        errors.print(
            f"The token in {token_file} may be in force instead of an earlier one of {name}: keep the file until "
            "`hifi principal list` shows who created it last.",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
        raise
    console.print(f"Created {name}; the token is in {token_file}.", highlight=False, soft_wrap=True)


@app.command()
@report_errors
async def revoke(
    name: PrincipalName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Revoke a principal, or a person whom the OpenID Connect provider signs in: refused within seconds.

    Examples:
      hifi principal revoke ann
      hifi principal revoke oidc:bob@example.com
    """
    control = audit_topics(data, kafka, stream)
    await principal_store.revoke_principal(
        control.kafka, control.topics, name, author=author(), at_us=now_us()
    )
    console.print(f"Revoked {name}.", highlight=False)


@app.command()
@report_errors
async def restore(
    name: PrincipalName, data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None
) -> None:
    """Let a person sign in again with the OpenID Connect provider who was revoked.

    Examples:
      hifi principal restore oidc:bob@example.com
    """
    control = audit_topics(data, kafka, stream)
    await principal_store.restore_person(control.kafka, control.topics, name, author=author(), at_us=now_us())
    console.print(f"{name} may sign in again.", highlight=False)


@app.command("list")
@report_errors
async def list_principals(
    data: Data = DEFAULT_DATA, kafka: Kafka = None, stream: Stream = None, *, as_json: AsJson = False
) -> None:
    """List the principals with their roles and the last use of their tokens.

    Examples:
      hifi principal list
    """
    control = audit_topics(data, kafka, stream)
    principals = await principal_store.read_principals(control.kafka, control.topics)
    last_uses = await principal_store.read_last_uses(control.kafka, control.topics)
    active_principals, revoked_principals = principals.by_name.values(), principals.revoked.values()
    if as_json:
        print_json(
            [
                *(
                    {**principal.json(), "last_used_us": last_uses.at_us(principal.name, principal.at_us)}
                    for principal in active_principals
                ),
                *({**person.json(), "revoked": True} for person in revoked_principals),
            ]
        )
        return
    rows = table("name", "role", "pipes", "expires", "last used", "created by")
    for principal in active_principals:
        rows.add_row(
            principal.name,
            principal.role.value,
            ", ".join(principal.pipes) or "all",
            utc_time(principal.expires_us),
            utc_time(last_uses.at_us(principal.name, principal.at_us)),
            principal.author,
        )
    for person in revoked_principals:
        rows.add_row(person.name, "revoked", "", "", "", person.author)
    print_table(rows, console)
