"""Changes of the registry: what each one answers, and the records that make it. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from hifi.record.record import Record
from hifi_manage.schemas.compatibility_level import Level
from hifi_manage.schemas.normalized import normalized
from hifi_manage.schemas.refusals import (
    INCOMPATIBLE,
    NO_LEVEL_OF_SUBJECT,
    REFERENCED,
    SUBJECT_NOT_SOFT_DELETED,
    SUBJECT_SOFT_DELETED,
    VERSION_NOT_SOFT_DELETED,
    VERSION_SOFT_DELETED,
    RegistryRefusal,
    subject_not_found,
    version_not_found,
)
from hifi_manage.schemas.registered import (
    DEFAULT_LEVEL,
    Registered,
    SchemaBody,
    Version,
    deleted,
    last_id_record,
    level_record,
)


class RegistryChange(NamedTuple):
    """A change of the registry.

    Attributes:
        answer: to the caller.
        records: to write, all or none; empty: it is as the caller wants it.
        version: number that the change is about, for the audit; 0: none.
    """

    answer: Any
    records: Sequence[Record] = ()
    version: int = 0


def registration(
    registered: Registered, subject: str, body: SchemaBody, *, normalize: bool = False
) -> RegistryChange:
    """Register a schema under a subject. A schema has the same id under all subjects.

    Args:
        registered: the registry.
        subject: name.
        body: of the schema.
        normalize: register its normal form, and take a version with the same one for it.

    Raises:
        RegistryRefusal: 42201, it is not valid; 40402, a version that it refers to does not exist or is deleted; 409,
            it is not compatible.
    """
    existing = find(registered, subject, body, normalize=normalize)
    if existing is not None:
        return RegistryChange({"id": existing.id, "version": existing.number, "schema": existing.body.text})
    registered.require_references(body)
    new_schema, versions = registered.read(body), registered.versions(subject)
    body = normalized(body) if normalize else body
    level = registered.level(subject)
    problems = list(
        level.problems(new_schema, [(version.number, registered.read(version.body)) for version in versions])
    )
    if problems:
        text = f"Schema being registered is incompatible with an earlier schema for subject '{subject}' ({level.value})"
        raise RegistryRefusal(INCOMPATIBLE, f"{text}: {'; '.join(problems)}")
    schema_id = registered.id_of(body)
    number = max(registered.subjects.get(subject, {0: None})) + 1
    version = Version(subject, number, registered.last_id + 1 if schema_id is None else schema_id, body)
    records = [version.record()]
    if schema_id is None:
        records.append(last_id_record(version.id))
    return RegistryChange({"id": version.id, "version": number, "schema": body.text}, records, number)


def find(
    registered: Registered,
    subject: str,
    body: SchemaBody,
    *,
    with_deleted: bool = False,
    normalize: bool = False,
) -> Version | None:
    """The newest version of a subject with a schema, or with the same normal form, or None.

    Raises:
        RegistryRefusal: 42201, the schema is to be normalized and is not valid.
    """
    if normalize:
        registered.read(body)
    identity = normalized(body).identity if normalize else body.identity
    for version in reversed(registered.versions(subject, deleted=with_deleted)):
        if (normalized(version.body) if normalize else version.body).identity == identity:
            return version
    return None


def deletion(registered: Registered, subject: str, *, permanent: bool) -> RegistryChange:
    """Delete a subject: its schemas can still be read by their ids; permanently only what was deleted so before.

    Raises:
        RegistryRefusal: there is no such subject, or it is not in the state for this, or a schema refers to it.
    """
    all_versions, live_versions = registered.versions(subject, deleted=True), registered.versions(subject)
    if not all_versions:
        raise subject_not_found(subject)
    if permanent and live_versions:
        raise RegistryRefusal(
            SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    if not permanent and not live_versions:
        raise RegistryRefusal(
            SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently",
        )
    removed_versions = all_versions if permanent else live_versions
    _check_unreferenced(registered, removed_versions, permanent=permanent)
    levels = [level_record(subject, None)] if subject in registered.levels else []
    return RegistryChange(
        [version.number for version in removed_versions],
        [*(_removal(version, permanent=permanent) for version in removed_versions), *levels],
    )


def version_deletion(registered: Registered, version: Version, *, permanent: bool) -> RegistryChange:
    """Delete one version of a subject.

    Raises:
        RegistryRefusal: it is not in the state for this, or a schema refers to it.
    """
    name = f"Subject '{version.subject}' Version {version.number}"
    if permanent and not version.deleted:
        raise RegistryRefusal(
            VERSION_NOT_SOFT_DELETED, f"{name} was not deleted first before being permanently deleted"
        )
    if not permanent and version.deleted:
        raise RegistryRefusal(
            VERSION_SOFT_DELETED, f"{name} was soft deleted. Set permanent=true to delete permanently"
        )
    _check_unreferenced(registered, [version], permanent=permanent)
    return RegistryChange(version.number, [_removal(version, permanent=permanent)], version.number)


def level_change(registered: Registered, subject: str | None, level: Level) -> RegistryChange:
    """Set the level of a subject, or of those without one of their own (None)."""
    is_unchanged = registered.levels.get(subject) is level
    return RegistryChange(
        {"compatibility": level.value}, () if is_unchanged else [level_record(subject, level)]
    )


def level_removal(registered: Registered, subject: str | None) -> RegistryChange:
    """Remove the level of a subject, or set that of all others to the default (None).

    Raises:
        RegistryRefusal: 40408, the subject has none.
    """
    previous_level = registered.levels.get(subject)
    if previous_level is None and subject is not None:
        raise no_level(subject)
    content = {"compatibilityLevel": (previous_level or DEFAULT_LEVEL).value}
    return RegistryChange(content, [] if previous_level is None else [level_record(subject, None)])


def no_level(subject: str) -> RegistryRefusal:
    """40408."""
    text = f"Subject '{subject}' does not have subject-level compatibility configured"
    return RegistryRefusal(NO_LEVEL_OF_SUBJECT, text)


def the_version(
    registered: Registered, subject: str, number: int | None, *, with_deleted: bool = False
) -> Version:
    """A version of a subject; None: the newest one.

    Raises:
        RegistryRefusal: there is no such subject or version.
    """
    versions = registered.versions(subject, deleted=with_deleted)
    if not versions:
        raise subject_not_found(subject)
    if number is None:
        return versions[-1]
    for version in versions:
        if version.number == number:
            return version
    raise version_not_found(number)


def _check_unreferenced(registered: Registered, versions: Sequence[Version], *, permanent: bool) -> None:
    names = {(version.subject, version.number) for version in versions}
    for version in versions:
        for referrer in registered.referrers(version):
            if (permanent or not referrer.deleted) and (referrer.subject, referrer.number) not in names:
                raise RegistryRefusal(
                    REFERENCED,
                    f"One or more references exist to the schema {version.subject} {version.number}:"
                    f" {referrer.subject} {referrer.number}",
                )


def _removal(version: Version, *, permanent: bool) -> Record:
    return version.removal() if permanent else deleted(version).record()
