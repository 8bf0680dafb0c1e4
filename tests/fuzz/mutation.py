"""Changes bytes at random, but the same way in each run, for a short look at the decoders without instrumentation."""

import random
from collections.abc import Iterator, Sequence
from typing import Final

_TOKENS: Final = (
    *(
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\n\n",
        b";",
        b":",
        b",",
        b'"',
        b"\\",
        b"'",
        b"\\ud800",
    ),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b"[" * 100,
        b'{"a":' * 100,
        b"- ",
        b"? ",
        b"&a ",
        b"*a",
        b"!!bool ",
        b"!!int ",
        b"<<: ",
    ),
    *(b"-1", b"0", b"1e999", b"9" * 30, b"9" * 5000, b"9223372036854775808", b"0x", b"NaN", b"null", b"true"),
    *(
        b"2;",
        b"ce-",
        b"=",
        b"%00",
        b"%ff",
        b"Bearer ",
        b"Basic ",
        b"$ref",
        b"1970-01-01T00:00:60Z",
        b"9999-99-99",
    ),
)
"""Texts at which parsers have failed."""


def mutations(seeds: Sequence[bytes], count: int) -> Iterator[bytes]:
    """Changed copies of the seeds, in turn."""
    dice = random.Random(40)
    for number in range(count):
        content = bytearray(seeds[number % len(seeds)])
        for _ in range(dice.randint(1, 4)):
            _change(content, seeds, dice)
        yield bytes(content)


def _change(content: bytearray, seeds: Sequence[bytes], dice: random.Random) -> None:
    start = dice.randint(0, len(content))
    end = min(len(content), start + dice.choice((1, 1, 2, 4, 16, 64)))
    match dice.randrange(6):
        case 0:
            content[start:end] = b""
        case 1:
            content[start:start] = dice.choice(_TOKENS)
        case 2:
            content[start:end] = dice.choice(_TOKENS)
        case 3:
            content[start:start] = content[start:end] * dice.choice((1, 2, 20))
        case 4:
            content[start:end] = dice.randbytes(end - start)
        case _:
            other_seed = dice.choice(seeds)
            content[start:] = other_seed[dice.randint(0, len(other_seed)) :]
