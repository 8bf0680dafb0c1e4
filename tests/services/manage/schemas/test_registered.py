"""A record of the schema registry that cannot be one is skipped, and hides no version that was read before."""

import pytest

from hifi_manage.schemas.compatibility_level import Level
from hifi_manage.schemas.registered import Reference, Registered, SchemaBody, Version, level_record

VERSION = Version("s", 1, 3, SchemaBody('"int"', (Reference("a", "b", 1),)))
VALUE = b'{"id":3,"schema":"\\"int\\"","references":[],"deleted":false}'


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["version",5,1]', VALUE),
        (b'["version","s","x"]', VALUE),
        (b'["version","s",1]', VALUE.replace(b"3", b'"x"', 1)),
        (b'["version","s",1]', VALUE.replace(b"[]", b'[{"name":5,"subject":"b","version":1}]')),
        (b'["version","s",1]', VALUE.replace(b"false", b"[]")),
        (b'["level",["s"]]', b'"NONE"'),
        (b'["level","s"]', b'"x"'),
        (b'["last-id"]', b"-1"),
        (b'["last-id"]', b"1e300"),
        (b'["version"]', VALUE),
        (b"5", VALUE),
        (None, None),
    ],
)
def test_a_record_of_another_type_is_refused(key: bytes | None, value: bytes | None) -> None:
    registered = Registered()
    for record in (VERSION.record(), level_record("s", Level.FULL)):
        registered.take(record.key, record.value, 0)
    with pytest.raises(ValueError, match="not a record of the schema registry"):
        registered.take(key, value, 1)
    assert (list(registered.all()), registered.level("s"), registered.last_id) == ([VERSION], Level.FULL, 0)
