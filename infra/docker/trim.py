"""Removes from installed packages what a running service never reads.

These are sources of compiled modules, type stubs, and the tables of symbols in shared objects: the loader reads an
object's program headers only, so everything behind the last segment that they name can go (uvloop: 16 MB become 2).
Python sources stay, for tracebacks, and so do licences.
"""

import shutil
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

SOURCES: Final = ("*.pyx", "*.pxd", "*.pxi", "*.pyi", "*.c", "*.cpp", "*.h", "*.hpp", "*.a")
ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"


def without_sections(content: bytes) -> bytes:
    """A 64-bit little-endian ELF object cut behind its last segment; anything else as it is."""
    if not content.startswith(ELF_64_LITTLE):
        return content
    (headers,) = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    end = headers + size * count
    for number in range(count):
        offset, _, _, length = struct.unpack_from("<QQQQ", content, headers + number * size + 8)
        end = max(end, offset + length)
    object_file = bytearray(content[:end])
    object_file[40:48] = bytes(8)  # where the section headers were
    object_file[60:64] = bytes(4)  # how many, and which one held their names
    return bytes(object_file)


def trim(folder: Path, patterns: Iterable[str] = ()) -> None:
    """Remove from a folder what no running service reads, and files and folders that patterns name, as for `glob`."""
    for pattern in (*SOURCES, *patterns):
        for path in list(folder.rglob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for path in folder.rglob("*.so*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(without_sections(path.read_bytes()))
