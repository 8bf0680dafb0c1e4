"""A version of an object has one ordinal for ever, whenever it appears and in whatever order objects are listed."""

from typing import Any

import orjson

from hifi_objects.source.catalog import FORGET_S, POSTPONE_S, ObjectCatalog, ObjectsAt
from hifi_objects.source.version import ObjectVersion


def version(path: str, content: str = "1", modified_us: int = 0) -> ObjectVersion:
    return ObjectVersion(path, content, 10, modified_us)


def paths(catalog: ObjectCatalog, ordinal: int = 0) -> list[tuple[int, str]]:
    objects = []
    while (known_object := catalog.next(ordinal)) is not None:
        objects.append((known_object.ordinal, known_object.object.path))
        ordinal = known_object.ordinal + 1
    return objects


def test_a_late_object_with_an_earlier_name_is_read_after_those_that_were_seen() -> None:
    catalog = ObjectCatalog({}, 0)
    entries: dict[str, Any] = catalog.add(catalog.unseen([version("b"), version("c")], 0), 0)
    late_versions = catalog.unseen([version("a"), version("b"), version("c")], 1)
    assert [known_object.path for known_object in late_versions] == ["a"]
    entries |= catalog.add(late_versions, 2)
    restored_catalog = ObjectCatalog(orjson.loads(orjson.dumps(entries)), 0)
    assert paths(restored_catalog) == [(0, "b"), (1, "c"), (2, "a")]
    assert restored_catalog.unseen([version("c"), version("b"), version("a")], 0) == []


def test_an_object_that_was_written_again_is_another_version() -> None:
    catalog = ObjectCatalog({}, 0)
    catalog.add([version("a")], 0)
    assert catalog.unseen([version("a", "2")], 0) == [version("a", "2")]
    catalog.add([version("a", "2")], 1)
    assert paths(catalog) == [(0, "a"), (1, "a")]
    assert list(catalog.forget(2, 0)) == ["o/0"]
    assert catalog.unseen([version("a", "2")], 0) == []


def test_a_file_is_read_when_it_has_not_changed_for_a_while() -> None:
    catalog = ObjectCatalog({}, settle_s=10)
    assert catalog.unseen([version("a", "1")], 0) == []
    assert catalog.unseen([version("a", "2")], 9) == [], "it grows"
    assert catalog.unseen([version("a", "2")], 18) == []
    assert catalog.unseen([version("a", "2")], 19) == [version("a", "2")]


def test_an_object_that_may_not_be_read_gets_a_later_ordinal_after_a_while() -> None:
    catalog = ObjectCatalog({}, 0)
    catalog.add([version("a"), version("b", "1"), version("b", "2"), version("c")], 0)
    refused_version = catalog.next(2)
    assert refused_version is not None
    assert catalog.postpone(refused_version, 100) == {"o/2": None}
    assert paths(catalog, 3) == [(3, "c")]
    versions = [version("a"), version("b", "2"), version("c")]
    assert catalog.unseen(versions, 100 + POSTPONE_S - 1) == []
    assert catalog.forget(4, 100) == {}
    assert catalog.unseen(versions, 100 + POSTPONE_S) == [version("b", "2")]
    catalog.add([version("b", "2")], 4)
    assert paths(catalog, 4) == [(4, "b")]


def test_objects_are_read_in_the_order_of_their_times() -> None:
    catalog = ObjectCatalog({}, 0)
    versions = [version("a", modified_us=3), version("b", modified_us=1), version("c", modified_us=2)]
    assert [known_object.path for known_object in catalog.unseen(versions, 0)] == ["b", "c", "a"]


def test_an_object_that_was_read_and_removed_is_forgotten_after_a_day() -> None:
    catalog = ObjectCatalog({}, 0)
    catalog.add([version("a"), version("b")], 0)
    catalog.unseen([version("b")], 100)
    assert catalog.forget(0, 100 + FORGET_S) == {}, "it is not read yet"
    assert catalog.forget(1, 99 + FORGET_S) == {}
    catalog.unseen([version("b")], 50 + FORGET_S)
    assert catalog.forget(2, 100 + FORGET_S) == {"o/0": None}
    assert catalog.unseen([version("a"), version("b")], 0) == [version("a")]


def test_the_position_of_a_row_is_above_all_rows_of_earlier_objects() -> None:
    catalog = ObjectCatalog({}, 0)
    catalog.add([version("a"), version("b")], 0)
    first_object = catalog.next(0)
    second_object = catalog.next(1)
    assert first_object is not None
    assert second_object is not None
    assert first_object.position(2**32 - 1) < second_object.position(1) < second_object.position(2)


def test_how_far_objects_are_read_can_be_written_down() -> None:
    written_down = ObjectsAt.read(None)._replace(ordinal=3, row=500, batch=(700, 17))
    assert ObjectsAt.read(orjson.loads(orjson.dumps(written_down.entry()))) == written_down
    assert ObjectsAt.read(None).read_id != written_down.read_id
