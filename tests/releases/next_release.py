"""Makes a release as the next one may be: it appends a field to each packed header, and adds a header of its own.

See "Additions, and neighbouring releases" in docs/decisions/record-format.md for what a release may change.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIELD = b"next"
"""The value of each appended field."""
HEADER = "hifi_next"
"""The added header."""
_PRODUCER = Path("libs/hifi/kafka/producer.py")
_RECORD_SQL = Path("services/enrich/hifi_enrich/plan/record_sql.py")
_SEND = "        sizes = [record.size_bytes() + _FRAMING_BYTES for record in records]\n"
_APPEND = f'''

def _as_the_next_release(topic: str, record: Record) -> Record:
    """A record as the next release writes it. What ingest wrote into `hifi` is passed on byte for byte."""
    headers = []
    for name, value in record.headers:
        count = {{"hifi": 7, "hifi_hop": 4, "hifi_receipt": 12}}.get(name)
        parts = value.split(b";")
        if count is not None and len(parts) <= count and (name != "hifi" or topic.endswith(".raw")):
            parts += [b""] * (count - len(parts)) + [{FIELD!r}]
        headers.append((name, b";".join(parts)))
    if headers and headers[0][0] == "hifi" and {HEADER!r} not in dict(headers):
        headers.append(({HEADER!r}, b"1"))
    return Record(record.key, record.value, headers)
'''
_HOP = "coalesce(hop[1], ''), ';', result.to)"
_HOP_OF_NEXT = f"coalesce(hop[1], ''), ';', result.to, ';;{FIELD.decode()}')"


def make_next_release(folder: Path) -> Path:
    """Copy libraries and services into a new folder and change what they write; returns the folder."""
    for part in ("libs", "services"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    _replace(
        folder / _PRODUCER,
        _SEND,
        "        records = [_as_the_next_release(topic, record) for record in records]\n" + _SEND,
    )
    with (folder / _PRODUCER).open("a", encoding="utf-8") as producer:
        producer.write(_APPEND)
    _replace(folder / _RECORD_SQL, _HOP, _HOP_OF_NEXT)
    return folder


def _replace(file: Path, before: str, after: str) -> None:
    text = file.read_text("utf-8")
    assert text.count(before) == 1, f"{file.name} has changed: adapt this module"
    file.write_text(text.replace(before, after), "utf-8")
