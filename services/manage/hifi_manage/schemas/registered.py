"""The content of the topic of schemas: versions of subjects, compatibility levels, and the last id. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final

import orjson
from pydantic import Field, TypeAdapter

from hifi.avro.schema import AvroSchema, InvalidSchema, read_schema
from hifi.record.record import Record
from hifi.record.typed_body import LARGEST, RecordBodyReader
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
    """A schema as it is registered. Equal bodies have the same id."""

    text: str
    references: tuple[Reference, ...] = ()

    @cached_property
    def identity(self) -> bytes:
        """The same for equal bodies: the JSON with sorted keys, and the references."""
        try:
            tree = orjson.loads(self.text)
        except orjson.JSONDecodeError:  # the bare name of a primitive type
            tree = self.text
        reference_rows = [reference.json() for reference in self.references]
        return orjson.dumps([tree, reference_rows], option=orjson.OPT_SORT_KEYS)


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


_SUBJECT: Final = TypeAdapter(str)
_NUMBER: Final = TypeAdapter(Annotated[int, Field(ge=0, lt=LARGEST)])
_BODY: Final = RecordBodyReader(SchemaBody, "a schema")
_VERSION_READER: Final = RecordBodyReader(Version, "a version of a subject")


def level_record(subject: str | None, level: Level | None) -> Record:
    """The record that sets the level of a subject, or of all (None); without a level it removes it."""
    return Record(_key(_LEVEL, subject), None if level is None else orjson.dumps(level.value), [])


def last_id_record(last_id: int) -> Record:
    """The record of the last id that was given: none is given again, even if its schema was removed."""
    return Record(_key(_LAST_ID), orjson.dumps(last_id), [])


class Registered:
    """A copy of the topic, filled with its records in their order."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        """Subject to its versions by number, also those that are deleted."""
        self.levels: dict[str | None, Level] = {}
        """Subject, or None for all others, to the level that was set."""
        self.last_id = 0
        self.last_offset = -1
        self._version_keys: dict[int, set[tuple[str, int]]] = {}
        """Id to the subjects and numbers of its versions."""
        self._ids: dict[bytes, int] = {}
        """Identity of a body to its id."""
        self._schemas: dict[bytes, AvroSchema] = {}

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record.

        Raises:
            ValueError: it is not a record of this topic.
        """
        self.last_offset = offset
        try:
            kind, *key_parts = orjson.loads(key or b"")
            content: Any = None if value is None else orjson.loads(value)
            if kind == _LAST_ID:
                self.last_id = _NUMBER.validate_python(content)
            elif kind == _LEVEL:
                scope = None if key_parts[0] is None else _SUBJECT.validate_python(key_parts[0])
                level = None if content is None else Level(content)
                self.levels.pop(scope, None)
                if level is not None:
                    self.levels[scope] = level
            elif kind == _VERSION:
                subject, number = (
                    _SUBJECT.validate_python(key_parts[0]),
                    _NUMBER.validate_python(key_parts[1]),
                )
                self._take_version(
                    subject, number, None if content is None else _version(subject, number, content)
                )
        except (IndexError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a record of the schema registry: {error!r}") from None

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, oldest first; empty: there is no such subject.

        Args:
            subject: name.
            deleted: also those that are deleted.
        """
        versions_by_number = self.subjects.get(subject, {})
        return [
            versions_by_number[number]
            for number in sorted(versions_by_number)
            if deleted or not versions_by_number[number].deleted
        ]

    def all(self) -> Iterator[Version]:
        """All versions of all subjects, also those that are deleted."""
        for subject in sorted(self.subjects):
            yield from self.versions(subject, deleted=True)

    def of_id(self, schema_id: int) -> list[Version]:
        """The versions with an id, also those that are deleted."""
        return [
            self.subjects[subject][number]
            for subject, number in sorted(self._version_keys.get(schema_id, ()))
        ]

    def id_of(self, body: SchemaBody) -> int | None:
        """The id of a body; None: it has none yet."""
        return self._ids.get(body.identity)

    def level(self, subject: str | None) -> Level:
        """The level that holds for a subject, or for those without one of their own (None)."""
        return self.levels.get(subject) or self.levels.get(None, DEFAULT_LEVEL)

    def referrers(self, version: Version) -> list[Version]:
        """The versions, deleted ones too, whose schemas refer to this one."""
        target = version.subject, version.number
        return [
            version
            for version in self.all()
            if any((reference.subject, reference.version) == target for reference in version.body.references)
        ]

    def read(self, body: SchemaBody) -> AvroSchema:
        """A schema, checked.

        Raises:
            RegistryRefusal: 42201, it is not valid; 40402, a version that it refers to does not exist.
        """
        identity = body.identity
        schema = self._schemas.get(identity)
        if schema is None:
            try:
                schema = read_schema(body.text, self._reference_texts(body))
            except InvalidSchema as error:
                raise RegistryRefusal(INVALID_SCHEMA, f"Invalid schema: {error}") from None
            if len(self._schemas) >= 1000:
                self._schemas.clear()
            self._schemas[identity] = schema
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

    def _take_version(self, subject: str, number: int, version: Version | None) -> None:
        identity = b"" if version is None else version.body.identity
        versions_by_number = self.subjects.setdefault(subject, {})
        previous_version = versions_by_number.pop(number, None)
        if previous_version is not None:
            version_keys = self._version_keys[previous_version.id]
            version_keys.discard((subject, number))
            if not version_keys:
                del self._version_keys[previous_version.id]
                if self._ids.get(previous_version.body.identity) == previous_version.id:
                    del self._ids[previous_version.body.identity]
        if version is not None:
            versions_by_number[number] = version
            self._version_keys.setdefault(version.id, set()).add((subject, number))
            self._ids[identity] = version.id
        if not versions_by_number:
            del self.subjects[subject]


def _version(subject: str, number: int, content: Mapping[str, Any]) -> Version:
    """A version from the value of its record.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    body = _BODY.of_json({"text": content["schema"], "references": content["references"]})
    version_json = {"subject": subject, "number": number, "id": content["id"], "deleted": content["deleted"]}
    return _VERSION_READER.of_json(version_json, body=body)


def deleted(version: Version) -> Version:
    """A version that is deleted but can still be read by its id."""
    return replace(version, deleted=True)


def _key(*components: str | int | None) -> bytes:
    return orjson.dumps(components)
