"""hifi upgrade: what an upgrade to the installed release changes, before it is made."""

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from hifi.kafka.acl_admin import missing_acls
from hifi.kafka.admin import topic_facts
from hifi.kafka.security.access import OPTIONAL, Acl, access
from hifi.kafka.topics import ControlTopics, DeclaredTopics
from hifi.pipe.limits import pipe_limits
from hifi.pipe.registry import RegistrySnapshot, read_registry
from hifi_cli.commands.acl import DEFAULT_PRINCIPAL, Principal, principal_of, principals
from hifi_cli.display.console import console, print_json
from hifi_cli.display.tables import print_table, table
from hifi_cli.error_reporting import report_errors
from hifi_cli.mesh_state.target import Target, kafka_targets
from hifi_cli.options import DEFAULT_DATA, AsJson, Data, Kafka, Stream
from hifi_cli.upgrade.change import ACL_APPLY, UpgradeChange
from hifi_cli.upgrade.pipe_changes import pipe_changes
from hifi_cli.upgrade.setting_changes import (
    ENVIRONMENT,
    compose_variables,
    known_settings,
    setting_changes,
)
from hifi_cli.upgrade.topic_changes import topic_changes
from hifi_infra.kafka.stream_setup import DEFAULT_PARTITIONS
from hifi_infra.mesh import running

CHANGES: Final = 3
"""Exit status when there is something to do."""
app = typer.Typer(help="Say what an upgrade changes before it is made.")


@app.callback()
def upgrade() -> None:
    """Say what an upgrade changes before it is made."""


@app.command()
@report_errors
async def check(
    data: Data = DEFAULT_DATA,
    kafka: Kafka = None,
    stream: Stream = None,
    principal: Principal = DEFAULT_PRINCIPAL,
    compose: Annotated[
        list[Path] | None,
        typer.Option(
            "--compose", metavar="FILE", help="Compose file whose variables are checked. Can be repeated."
        ),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Compare what runs with what the installed release wants, and change nothing.

    Lists topics that setup would create and settings of topics that it refuses or
    leaves, ACLs that `hifi acl apply` would create (for `connect`, `changes` and
    `colours` only if Kafka has some of theirs), variables HIFI_… that this release
    does not know, and published pipes that it cannot read or refuses. A data folder
    of a newer release is refused.

    Exit status: 0 if there is nothing to do, 3 if there is.

    Examples:
      hifi upgrade check
      hifi upgrade check --kafka broker1:9093 --stream orders --compose compose.yaml
    """
    running.read(data)  # refuses the folder of a newer release
    variables: dict[str, list[str]] = {ENVIRONMENT: list(os.environ)}
    for file in compose or ():
        variables |= compose_variables(file)
    changes = setting_changes(variables, known_settings())
    for target in kafka_targets(data, kafka, stream).values():
        changes += [change for change in await _changes(target, principal) if change not in changes]
    if as_json:
        print_json([change.json() for change in changes])
    elif changes:
        _print(changes)
    else:
        console.print("Nothing to do: what runs is as this release wants it.", highlight=False)
    if changes:
        raise typer.Exit(CHANGES)


def _print(changes: list[UpgradeChange]) -> None:
    rows = table("kind", "name", "now", "wanted", "needed by", "made by", "what to do")
    for change in changes:
        services = ", ".join(change.services)
        rows.add_row(
            change.kind,
            change.name,
            change.now or "-",
            change.wanted or "-",
            services or "-",
            change.made_by,
            change.what_to_do,
        )
    print_table(rows, console)


async def _changes(target: Target, principal: str) -> list[UpgradeChange]:
    topics, audit = target.topics, target.principals
    control = audit.topics if isinstance(audit.topics, ControlTopics) else None
    if control is None and target.control is not None:
        control = target.control.topics
    service_access = access(topics, control)
    published = await _published(target)
    partitions = (published.partitions if published else None) or DEFAULT_PARTITIONS
    changes = list(pipe_changes(published, pipe_limits())) if published else []
    declared: list[tuple[str, DeclaredTopics]] = [
        (target.kafka, topics),
        (audit.kafka, control or audit.topics),
    ]
    for bootstrap, declaration in declared:
        all_topics = declaration.all()
        existing_topics = await topic_facts(bootstrap, [topic.name for topic in all_topics])
        changes += topic_changes(all_topics, partitions, existing_topics, service_access)
    entries = principals(topics, principal, [control])
    missing_entries = await missing_acls(target.kafka, entries) or []
    optional = {principal_of(topics, principal, role) for role in OPTIONAL}
    return changes + _acl_changes(_of_existing_users(missing_entries, entries, optional))


async def _published(target: Target) -> RegistrySnapshot | None:
    """The published pipes; None if there is no topic of them."""
    if not await topic_facts(target.kafka, [target.topics.pipes]):
        return None
    return await read_registry(target.kafka, target.topics)


def _of_existing_users(
    missing_entries: Sequence[tuple[str, Acl]],
    entries: Mapping[str, Sequence[Acl]],
    optional: Collection[str],
) -> list[tuple[str, Acl]]:
    """The missing entries, but for those of optional users who have none: the mesh does without them."""
    counts = Counter(name for name, _ in missing_entries)
    return [
        (name, acl)
        for name, acl in missing_entries
        if name not in optional or counts[name] < len(entries[name])
    ]


def _acl_changes(missing_entries: Sequence[tuple[str, Acl]]) -> list[UpgradeChange]:
    """The missing entries by principal and resource."""
    operations: dict[tuple[str, str, str], list[str]] = {}
    for principal_name, acl in missing_entries:
        name = acl.name + "*" * acl.prefixed
        operations.setdefault((principal_name, acl.resource, name), []).append(acl.operation)
    return [
        UpgradeChange(
            "ACL",
            principal_name,
            "",
            f"{', '.join(allowed)} on {resource} {name}",
            ACL_APPLY,
            "run `hifi acl apply` before the services of this release",
            [principal_name.rpartition(".")[2]] if "." in principal_name else [],
        )
        for (principal_name, resource, name), allowed in operations.items()
    ]
