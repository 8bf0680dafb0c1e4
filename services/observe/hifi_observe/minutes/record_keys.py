"""Record keys of the compacted topic `minutes`, and the partition of a pipe's records."""

from zlib import crc32

WATERMARK = "watermark"
"""Kind of the keys of parts of watermarks."""


def partition_of(pipe: str, partitions: int) -> int:
    """The partition of `minutes` that holds a pipe; the instance that observes it owns the merged minutes."""
    return crc32(pipe.encode()) % partitions


def part(pipe: str, minute: int, partition: int) -> bytes:
    """One partition's share of a minute."""
    return f"part/{pipe}/{minute}/{partition}".encode()


def minute(pipe: str, minute: int) -> bytes:
    """A merged minute."""
    return f"minute/{pipe}/{minute}".encode()


def day(pipe: str, number: int) -> bytes:
    """The states of the minutes of a day, numbered since 1970 UTC."""
    return f"day/{pipe}/{number}".encode()


def usage(pipe: str, number: int) -> bytes:
    """Usage of the deleted minutes of a day, numbered since 1970 UTC."""
    return f"usage/{pipe}/{number}".encode()


def ids(pipe: str, minute: int) -> bytes:
    """The ids of lost and late events of a minute."""
    return f"ids/{pipe}/{minute}".encode()


def colours_day(pipe: str, number: int) -> bytes:
    """A day over both colours, numbered since 1970 UTC."""
    return f"colours-day/{pipe}/{number}".encode()


def colours_ids(pipe: str, minute: int) -> bytes:
    """The ids of lost and late events of a minute in other logs than this colour's."""
    return f"colours-ids/{pipe}/{minute}".encode()


def closed(partition: int) -> bytes:
    """The marker of one partition number: its newest closed minute, and where to read on after a restart."""
    return f"closed/{partition}".encode()


def live(partition: int, piece: int = 0) -> bytes:
    """A piece of the momentary figures of one partition number."""
    return f"live/{partition}/{piece}".encode() if piece else f"live/{partition}".encode()


def watermark(partition: int) -> bytes:
    """The part of one partition number in the watermarks (`hifi_observe.watermark.part`)."""
    return f"{WATERMARK}/{partition}".encode()


def open_minutes(partition: int) -> bytes:
    """The open minutes of one partition number that have changed."""
    return f"open/{partition}".encode()


def front(minute: int) -> bytes:
    """Refusals of the front before two colours in a minute."""
    return f"front/{minute}".encode()


def split(key: bytes) -> list[str]:
    """The parts of a key, the kind first."""
    return key.decode("utf-8", "replace").split("/")
