"""The demo's destination, which refuses `/away` with 503 from PUT /shut until PUT /open.

Run as a file: `python refusing.py PORT BOOKS`. What is refused is not in the books.
"""

import asyncio
import sys
from pathlib import Path

import uvloop

from hifi_cli.demo.destination import ANSWER, RequestLogConnection, serve

AWAY = b"/away"
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
shut = False


class Refusing(RequestLogConnection):
    """The demo's protocol, except for `/away`."""

    def on_message_complete(self) -> None:
        """See httptools."""
        global shut  # noqa: PLW0603 - the whole process is this one switch
        is_put = self._parser.get_method() == b"PUT"
        if not is_put and not (shut and self._url == AWAY):
            super().on_message_complete()
            return
        if is_put:
            shut = self._url == b"/shut"
        self._transport.write(ANSWER if is_put else REFUSED)
        if not self._parser.should_keep_alive():
            self._transport.close()
        self._first_ns = 0


def main() -> None:
    """`refusing_destination.py PORT BOOKS`."""
    with (
        Path(sys.argv[2]).open("ab", buffering=1 << 20) as file,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve("127.0.0.1", int(sys.argv[1]), file, Refusing))


if __name__ == "__main__":
    main()
