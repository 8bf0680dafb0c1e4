"""Takes out of installed packages what a running service never reads.

    python trim.py FOLDER [PATTERN...]      # patterns: further files or folders to remove, as for `glob`

Goes: sources of compiled modules, type stubs, the tables of symbols and debugging in shared objects. The loader
reads an object's program headers only, so everything behind the last segment they name can go (uvloop alone:
16 MB to 2). Stays: Python sources, for tracebacks; licences.
"""

import shutil
import struct
import sys
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
    cut = bytearray(content[:end])
    cut[40:48] = bytes(8)  # where the section headers were
    cut[60:64] = bytes(4)  # how many, and which one held their names
    return bytes(cut)


def main() -> None:
    """The command."""
    folder = Path(sys.argv[1])
    for pattern in (*SOURCES, *sys.argv[2:]):
        for path in list(folder.rglob(pattern)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for path in folder.rglob("*.so*"):
        if path.is_file() and not path.is_symlink():
            path.write_bytes(without_sections(path.read_bytes()))


if __name__ == "__main__":
    main()
