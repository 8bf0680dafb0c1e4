"""Read the JSON object in the value of a record as a dataclass, so that no value of another type goes further. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Annotated, Any, Final, Generic, TypeVar

import orjson
from pydantic import Strict, TypeAdapter, ValidationError

_Body = TypeVar("_Body")
Integer = Annotated[int, Strict()]
"""Of a JSON value that is checked and goes on as it is: no text with a number in it, and no `true`."""
Real = Annotated[float, Strict()]
"""As `Integer`, also with a fraction."""
LARGEST: Final = 253_402_300_800_000_000
"""Above what a number of a record is: the end of the year 9999, microseconds since 1970 UTC."""


class RecordBodyReader(Generic[_Body]):
    """Reads the records of one kind. Fields of later releases are skipped.

    Args:
        kind: a dataclass, whose annotations say what each field may be.
        name: of such a record, for people, with its article: `an action`.
        required: fields that a record has, although the dataclass has a default.
    """

    def __init__(self, kind: type[_Body], name: str, required: Collection[str] = ()) -> None:
        self._name = name
        self._fields = [field.name for field in fields(kind)]  # type: ignore[arg-type]
        self._required = required
        self._adapter = TypeAdapter(kind)

    def of_value(self, value: bytes | None, offset: int | None = None, /, **more_fields: Any) -> _Body:
        """Read the value of a record.

        Args:
            value: of the record.
            offset: of the record, for the error.
            more_fields: that are not in the value, or in the place of what is there.

        Raises:
            ValueError: it is not such a record.
        """
        try:
            return self.of_json(orjson.loads(value or b""), **more_fields)
        except ValueError as error:
            record = "not the record of" if offset is None else f"the record at offset {offset} is not"
            raise ValueError(f"{record} {self._name}: {error}") from None

    def of_json(self, body: Any, /, **more_fields: Any) -> _Body:
        """Read an object, as `of_value`.

        Raises:
            ValueError: it is not such an object.
        """
        if not isinstance(body, Mapping):
            raise ValueError("not a JSON object")  # noqa: TRY004 - as whatever else is wrong with it
        values = {name: body[name] for name in self._fields if name in body} | more_fields
        for name in self._required:
            if name not in values:
                raise ValueError(f"{name}: is missing")
        try:
            record_body = self._adapter.validate_python(values)
        except ValidationError as error:
            first_error = error.errors(include_url=False, include_input=False)[0]
            location = ".".join(map(str, first_error["loc"]))
            raise ValueError(f"{location}: {first_error['msg']}") from None
        for name in self._fields:
            content = getattr(record_body, name)
            if isinstance(content, int | float) and not -LARGEST < content < LARGEST:
                raise ValueError(f"{name}: {content} is beyond the year 9999")
        return record_body
