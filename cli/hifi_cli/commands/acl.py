"""hifi acl: the access control entries that a stream needs in Kafka."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any, Final

import typer

from hifi.kafka.acl_admin import create_acls
from hifi.kafka.admin import partition_counts
from hifi.kafka.security.access import Acl, user_access
from hifi.kafka.topics import ControlTopics, Topics
from hifi.runtime.errors import Misconfigured
from hifi_cli.display.console import console
from hifi_cli.display.tables import print_table, table
from hifi_cli.display.yaml import print_yaml
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_target, stream_topics
from hifi_cli.options import DEFAULT_DATA, ControlPlane, Data, Kafka, Stream
from hifi_infra.colours.colour_mesh import control_planes

DEFAULT_PRINCIPAL = "User:{stream}.{service}"
_TRANSACTIONAL_ID: Final = "transactional-id"
app = typer.Typer(help="Print or apply the access control entries (ACLs) that a stream needs in Kafka.")


class AclFormat(StrEnum):
    """Output formats of `hifi acl show`."""

    TABLE = "table"
    KAFKA_ACLS = "kafka-acls"
    STRIMZI = "strimzi"


Principal = Annotated[
    str,
    typer.Option(
        "--principal",
        metavar="TEMPLATE",
        help="Principal of each service, with {stream} and {service}; with mutual TLS such as User:CN={service}.",
    ),
]

Colours = Annotated[
    bool,
    typer.Option(
        "--colours",
        help="The stream has two colours: one list for the Kafka of each and for that of the control plane.",
    ),
]


@app.command()
@report_errors
def show(
    stream: Stream = None,
    control: ControlPlane = "",
    principal: Principal = DEFAULT_PRINCIPAL,
    output: Annotated[AclFormat, typer.Option("--format", help="Output format.")] = AclFormat.TABLE,
    *,
    colours: Colours = False,
) -> None:
    """Print what each service, the publisher of pipes and the operator may do.

    Every service needs a Kafka user of its own. `publisher` is for `hifi apply`,
    `pipes`, `rollout`, `keys`, `principal` and the setup job, `colours` for `hifi
    colour`, `operator` for all other commands. `connect` is for Kafka Connect,
    `changes` for pipes that read what it writes.

    Examples:
      hifi acl show
      hifi acl show --format kafka-acls | sh
      hifi acl show --stream orders --format strimzi | kubectl apply -f -
      hifi acl show --stream orders --colours
    """
    topics = stream_topics(stream or "hifi")
    entries = principals(topics, principal, _planes(topics, control, colours=colours))
    if output is AclFormat.KAFKA_ACLS:
        for line in kafka_acls(entries):
            print(line)
    elif output is AclFormat.STRIMZI:
        print_yaml(kafka_users(entries))
    else:
        rows = table("principal", "=operations", "=on", "name")
        for principal_name, acls in entries.items():
            for resource, name, operations in _by_resource(acls):
                rows.add_row(principal_name, ", ".join(operations), resource, name)
        print_table(rows, console)


@app.command()
@report_errors
async def apply(
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    control: Annotated[
        str,
        typer.Option(
            "--control",
            metavar="NAME",
            help="Name of the stream's control plane.",
            show_default="that of the mesh, with --kafka the one in HIFI_CONTROL",
        ),
    ] = "",
    principal: Principal = DEFAULT_PRINCIPAL,
    *,
    colours: Colours = False,
) -> None:
    """Create the missing entries in Kafka, as a user who may alter the cluster.

    Entries that exist and are not needed stay. Running it again changes nothing.

    Examples:
      hifi acl apply --kafka broker1:9093 --stream orders
    """
    target = kafka_target(data, kafka, stream)
    if not control and target.control is not None:
        control = target.control.topics.control
    entries = principals(target.topics, principal, _planes(target.topics, control, colours=colours))
    created_count = await _audited(target, entries)
    total = sum(map(len, entries.values()))
    console.print(f"{created_count} of {total} entries were missing and have been created.", highlight=False)


async def _audited(target: Target, entries: Mapping[str, Sequence[Acl]]) -> int:
    """Create the entries, with one in the audit once the stream has it: the first ones come before its topics."""
    audit = target.principals
    if not await partition_counts(audit.kafka, [audit.topics.audit]):
        return await create_acls(target.kafka, entries)
    subject = f"acls/{target.topics.stream}"
    async with audit.audited("create access control entries", {subject: None}) as values_after:
        created_count = await create_acls(target.kafka, entries)
        values_after[subject] = {"created": created_count}
    return created_count


def principals(
    topics: Topics, template: str, planes: Iterable[ControlTopics | None]
) -> Mapping[str, Sequence[Acl]]:
    """Principal to its entries, for all control planes together.

    Args:
        topics: the stream's.
        template: of the names of principals.
        planes: control planes on the Kafka; None among them: what is needed where there is none.

    Raises:
        Misconfigured: the template is wrong.
    """
    acls: dict[str, set[Acl]] = {}
    for control in planes:
        for role, role_access in user_access(topics, control).items():
            acls.setdefault(role, set()).update(role_access.acls())
    entries: dict[str, Sequence[Acl]] = {}
    for role, role_acls in acls.items():
        principal_name = principal_of(topics, template, role)
        if not principal_name.startswith("User:") or principal_name in entries:
            raise Misconfigured(
                f"--principal {template}: expected `User:` and {{service}}, for example {DEFAULT_PRINCIPAL}"
            )
        entries[principal_name] = sorted(role_acls)
    return entries


def principal_of(topics: Topics, template: str, role: str) -> str:
    """The principal of a service or of another user.

    Raises:
        Misconfigured: the template is wrong.
    """
    try:
        return template.format(stream=topics.stream, service=role)
    except (KeyError, IndexError, ValueError) as error:
        raise Misconfigured(
            f"--principal {template}: {error!r}; write for example {DEFAULT_PRINCIPAL}"
        ) from None


def _planes(topics: Topics, control: str, *, colours: bool) -> list[ControlTopics | None]:
    """The control planes of `principals`: with two colours those of each of their Kafkas."""
    named = ControlTopics(control) if control else None
    return [named, None, *control_planes(topics.stream)] if colours else [named]


def kafka_acls(entries: Mapping[str, Sequence[Acl]]) -> Iterator[str]:
    """The `kafka-acls.sh` commands that create the entries."""
    for principal_name, acls in entries.items():
        for resource, name, operations in _by_resource(acls):
            pattern = "prefixed" if name.endswith("*") else "literal"
            allowed = " ".join(f"--operation {operation}" for operation in operations)
            yield (
                f'kafka-acls.sh --bootstrap-server "$KAFKA" --command-config "$CONFIG" --add '
                f"--allow-principal '{principal_name}' {allowed} --{resource} '{name.removesuffix('*')}' "
                f"--resource-pattern-type {pattern}"
            )


def kafka_users(entries: Mapping[str, Sequence[Acl]]) -> list[dict[str, Any]]:
    """The entries as `KafkaUser` resources of Strimzi; their names are the principals' without `User:`."""
    return [
        {
            "apiVersion": "kafka.strimzi.io/v1",
            "kind": "KafkaUser",
            "metadata": {
                "name": principal_name.removeprefix("User:").removeprefix("CN="),
                "labels": {"strimzi.io/cluster": "CLUSTER"},
            },
            "spec": {
                "authentication": {"type": "tls" if "CN=" in principal_name else "scram-sha-512"},
                "authorization": {
                    "type": "simple",
                    "acls": [
                        {
                            "resource": {
                                "type": "transactionalId" if resource == _TRANSACTIONAL_ID else resource,
                                "name": name.removesuffix("*"),
                                "patternType": "prefix" if name.endswith("*") else "literal",
                            },
                            "operations": operations,
                        }
                        for resource, name, operations in _by_resource(acls)
                    ],
                },
            },
        }
        for principal_name, acls in entries.items()
    ]


def _by_resource(acls: Sequence[Acl]) -> Iterator[tuple[str, str, list[str]]]:
    """Resource type, name (with `*` if it is the beginning of names) and operations."""
    for (resource, name, is_prefix), group in groupby(
        acls, key=lambda acl: (acl.resource, acl.name, acl.prefixed)
    ):
        yield resource, name + "*" * is_prefix, [acl.operation for acl in group]
