"""The release of hifi that these sources are. Pure.

Metadata of installed packages do not tell it: an instance may run from a folder of another release.
"""

from typing import Final

VERSION: Final = "0.1.0rc2"
"""Written by `release/version.py`."""
