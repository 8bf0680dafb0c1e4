"""What the topic of schemas holds: versions of subjects, compatibility levels, and the last id that was given. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import orjson

from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.record.record import Record
from hifi_manage.schemas.compatibility_level import Level
from hifi_manage.schemas.refusals import INVALID_SCHEMA, RegistryRefusal, version_not_found

DEFAULT_LEVEL: Final = Level.BACKWARD
_VERSION, _LEVEL, _LAST_ID = "version", "level", "last-id"


@dataclass(frozen=True, slots=True)
class Reference:
    """A version of a subject whose names a schema uses."""

    name: str
    subject: str
    version: int

    def json(self) -> dict[str, Any]:
        """As in requests and answers."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class SchemaBody:
    """What is registered. Equal bodies have the same id."""

    text: str
    references: tuple[Reference, ...] = ()

    @cached_property
    def identity(self) -> bytes:
        """What makes two bodies equal: the JSON whatever the order of its keys, and the references."""
        try:
            tree = orjson.loads(self.text)
        except orjson.JSONDecodeError:  # the bare name of a primitive type
            tree = self.text
        named = [reference.json() for reference in self.references]
        return orjson.dumps([tree, named], option=orjson.OPT_SORT_KEYS)


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a subject; versions count from 1."""

    subject: str
    number: int
    id: int
    body: SchemaBody
    deleted: bool = False

    def record(self) -> Record:
        """The record for the topic."""
        value = {
            "id": self.id,
            "schema": self.body.text,
            "references": [reference.json() for reference in self.body.references],
            "deleted": self.deleted,
        }
        return Record(_key(_VERSION, self.subject, self.number), orjson.dumps(value), [])

    def removal(self) -> Record:
        """The record that removes it for ever."""
        return Record(_key(_VERSION, self.subject, self.number), None, [])

    def json(self) -> dict[str, Any]:
        """As in answers."""
        content: dict[str, Any] = {
            "subject": self.subject,
            "version": self.number,
            "id": self.id,
            "schema": self.body.text,
        }
        if self.body.references:
            content["references"] = [reference.json() for reference in self.body.references]
        return content


def level_record(subject: str | None, level: Level | None) -> Record:
    """The record that sets the level of a subject, or of all (None); without a level it removes it."""
    return Record(_key(_LEVEL, subject), None if level is None else orjson.dumps(level.value), [])


def last_id_record(last: int) -> Record:
    """The record of the last id that was given: none is given again, even if its schema was removed."""
    return Record(_key(_LAST_ID), orjson.dumps(last), [])


class Registered:
    """A copy of the topic, filled with its records in their order."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Subject to its versions by number, also those that are deleted."""
        self.levels: dict[str | None, Level] = {}
        """Subject, or None for all others, to the level that was set."""
        self.last_id = 0
        self.last_offset = -1
        self._places: dict[int, set[tuple[str, int]]] = {}
        """Id to the subjects and numbers of its versions."""
        self._ids: dict[bytes, int] = {}
        """Identity of a body to its id."""
        self._read: dict[bytes, AvroSchema] = {}

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record.

        Raises:
            ValueError: it is not a record of this topic.
        """
        self.last_offset = offset
        try:
            kind, *parts = orjson.loads(key or b"")
            content: Any = None if value is None else orjson.loads(value)
            if kind == _LAST_ID:
                self.last_id = int(content)
            elif kind == _LEVEL:
                self.levels.pop(parts[0], None)
                if content is not None:
                    self.levels[parts[0]] = Level(content)
            elif kind == _VERSION:
                self._take_version(parts[0], int(parts[1]), content)
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a record of the schema registry: {error!r}") from None

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, oldest first; empty: there is no such subject.

        Args:
            subject: name.
            deleted: also those that are deleted.
        """
        numbered = self.subjects.get(subject, {})
        return [numbered[number] for number in sorted(numbered) if deleted or not numbered[number].deleted]

    def all(self) -> Iterator[Version]:
        """All versions of all subjects, also those that are deleted."""
        for subject in sorted(self.subjects):
            yield from self.versions(subject, deleted=True)

    def of_id(self, schema: int) -> list[Version]:
        """The versions with an id, also those that are deleted."""
        return [self.subjects[subject][number] for subject, number in sorted(self._places.get(schema, ()))]

    def id_of(self, body: SchemaBody) -> int | None:
        """The id of a body; None: it has none yet."""
        return self._ids.get(body.identity)

    def level(self, subject: str | None) -> Level:
        """The level that holds for a subject, or for those without one of their own (None)."""
        return self.levels.get(subject) or self.levels.get(None, DEFAULT_LEVEL)

    def referrers(self, version: Version) -> list[Version]:
        """The versions, deleted ones too, whose schemas refer to this one."""
        named = version.subject, version.number
        return [
            version
            for version in self.all()
            if any((reference.subject, reference.version) == named for reference in version.body.references)
        ]

    def read(self, body: SchemaBody) -> AvroSchema:
        """A schema, checked.

        Raises:
            RegistryRefusal: 42201, it is not valid; 40402, a version that it refers to does not exist.
        """
        identity = body.identity
        schema = self._read.get(identity)
        if schema is None:
            try:
                schema = read_schema(body.text, self._reference_texts(body))
            except InvalidSchema as error:
                raise RegistryRefusal(INVALID_SCHEMA, f"Invalid schema: {error}") from None
            if len(self._read) >= 1000:
                self._read.clear()
            self._read[identity] = schema
        return schema

    def require_references(self, body: SchemaBody) -> None:
        """Check that a new schema refers to no version that is deleted: only what referred to it before may.

        Raises:
            RegistryRefusal: 40402, it does.
        """
        for reference in body.references:
            version = self.subjects.get(reference.subject, {}).get(reference.version)
            if version is not None and version.deleted:
                raise version_not_found(
                    f"{reference.version} of the referenced subject '{reference.subject}'"
                )

    def _reference_texts(self, body: SchemaBody) -> list[str]:
        """The schemas that a schema refers to, each after those that it refers to itself."""
        texts: dict[tuple[str, int], str] = {}

        def add(references: tuple[Reference, ...]) -> None:
            for reference in references:
                version = self.subjects.get(reference.subject, {}).get(reference.version)
                if version is None:
                    raise version_not_found(
                        f"{reference.version} of the referenced subject '{reference.subject}'"
                    )
                if (reference.subject, reference.version) not in texts:
                    add(version.body.references)
                    texts[reference.subject, reference.version] = version.body.text

        add(body.references)
        return list(texts.values())

    def _take_version(self, subject: str, number: int, content: Mapping[str, Any] | None) -> None:
        numbered = self.subjects.setdefault(subject, {})
        before = numbered.pop(number, None)
        if before is not None:
            places = self._places[before.id]
            places.discard((subject, number))
            if not places:
                del self._places[before.id], self._ids[before.body.identity]
        if content is not None:
            references = tuple(Reference(**reference) for reference in content["references"])
            body = SchemaBody(content["schema"], references)
            numbered[number] = Version(subject, number, content["id"], body, content["deleted"])
            self._places.setdefault(content["id"], set()).add((subject, number))
            self._ids[body.identity] = content["id"]
        if not numbered:
            del self.subjects[subject]


def deleted(version: Version) -> Version:
    """A version that is deleted but can still be read by its id."""
    return replace(version, deleted=True)


def _key(*parts: str | int | None) -> bytes:
    return orjson.dumps(parts)
