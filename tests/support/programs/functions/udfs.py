"""Functions that pipes in the tests name."""

import hashlib
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd


def double(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"twice": frame["n"] * 2})


def no_negatives(frame: pd.DataFrame) -> pd.DataFrame:
    if (frame["n"] < 0).any():
        raise ValueError(f"these are negative: {frame['n'].tolist()}")
    return pd.DataFrame({"root": frame["n"] ** 0.5})


def kinds(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "kinds": [" ".join(str(kind) for kind in frame.dtypes)] * len(frame),
            "later": frame["at"] + pd.Timedelta("1D"),
        }
    )


def same(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"same": frame["n"]})


def as_text(frame: pd.DataFrame) -> pd.DataFrame:
    """The text of the column `v`; elements of arrays as a list."""
    values = frame["v"].map(lambda value: value.tolist() if isinstance(value, np.ndarray) else value)
    return pd.DataFrame({"text": values.map(str)})


def too_few(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"twice": frame["n"].head(0)})


def exit_unless_real(frame: pd.DataFrame) -> pd.DataFrame:
    """End the Python worker, and with it the query, on made-up events."""
    if (frame["kind"] != "real").any():
        os._exit(1)
    return pd.DataFrame({"twice": frame["n"] * 2})


def hang_unless_real(frame: pd.DataFrame) -> pd.DataFrame:
    """Sleep for ever on events of the kind `hangs`, as a request without a time-out would."""
    while (frame["kind"] == "hangs").any():
        time.sleep(1)
    return pd.DataFrame({"twice": frame["n"] * 2})


def hang_once(frame: pd.DataFrame) -> pd.DataFrame:
    """Hang within a library, where no signal is handled, the first time that a folder is given."""
    for folder in {Path(path) for path in frame["folder"] if path and Path(path).is_dir()}:
        try:
            (folder / "called").mkdir()
        except FileExistsError:
            continue
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
    return pd.DataFrame({"twice": frame["n"] * 2})


def sees_secret(frame: pd.DataFrame) -> pd.DataFrame:
    """Whether this process was given the variable PLANTED_SECRET."""
    environment = Path("/proc/self/environ").read_text()
    is_seen = "PLANTED_SECRET" in os.environ or "PLANTED_SECRET" in environment
    return pd.DataFrame({"seen": [is_seen] * len(frame)})


def fill_memory(frame: pd.DataFrame) -> pd.DataFrame:
    """Allocate more than a worker may on events of the kind `big`."""
    if (frame["kind"] == "big").any():
        bytearray(2**40)
    return pd.DataFrame({"twice": frame["n"] * 2})
