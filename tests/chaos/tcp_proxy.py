"""A TCP proxy between services and brokers. A cut stops all bytes while connections stay open, as in a network.

Run as a file: `python tcp_proxy.py NAME=PORT:TARGET …` forwards each PORT of 127.0.0.1 to TARGET. Commands on standard
input: `cut NAME` and `restore NAME`. It ends when standard input does.
"""

import asyncio
import contextlib
import sys

_CHUNK = 64 * 1024


class ForwardedPort:
    """One forwarded port. `target` may change: connections that are made from then on go there."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.intact = asyncio.Event()
        self.intact.set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side closes it."""
        await self.intact.wait()
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        copies = [
            asyncio.create_task(self._copy(reader, target_writer)),
            asyncio.create_task(self._copy(target_reader, writer)),
        ]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for copy in copies:
            copy.cancel()
        writer.close()
        target_writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self.intact.wait()
                writer.write(data)
                await writer.drain()


async def serve(arguments: list[str]) -> None:
    """Forward until standard input ends."""
    ports = {}
    for argument in arguments:
        name, _, pair = argument.partition("=")
        port, _, target = pair.partition(":")
        ports[name] = ForwardedPort(int(target))
        await asyncio.start_server(ports[name].connected, "127.0.0.1", int(port))
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    while line := await commands.readline():
        command, _, name = line.decode().strip().partition(" ")
        intact = ports[name].intact
        intact.clear() if command == "cut" else intact.set()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
