"""Functions that pipes in the tests name."""

import os

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


def too_few(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"twice": frame["n"].head(0)})


def exit_unless_real(frame: pd.DataFrame) -> pd.DataFrame:
    """End the Python worker, and with it the query, on made-up events."""
    if (frame["kind"] != "real").any():
        os._exit(1)
    return pd.DataFrame({"twice": frame["n"] * 2})
