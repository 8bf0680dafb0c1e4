"""The wires between services and brokers, which can be cut: bytes stop, connections stay, as in a network.

Run as a file: `python wire.py NAME=PORT:TARGET …` forwards each PORT of 127.0.0.1 to TARGET. Lines on standard input:
`cut NAME` and `mend NAME`. Ends with its standard input.
"""

import asyncio
import contextlib
import sys

_CHUNK = 64 * 1024


class Wire:
    """One port, forwarded."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.whole = asyncio.Event()
        self.whole.set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client's connection, until either side closes it."""
        await self.whole.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        pumps = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        writer.close()
        far_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self.whole.wait()
                writer.write(data)
                await writer.drain()


async def serve(described: list[str]) -> None:
    """Until the end of standard input."""
    wires = {}
    for one in described:
        name, _, ports = one.partition("=")
        port, _, target = ports.partition(":")
        wires[name] = Wire(int(target))
        await asyncio.start_server(wires[name].connected, "127.0.0.1", int(port))
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(orders), sys.stdin
    )
    while line := await orders.readline():
        order, _, name = line.decode().strip().partition(" ")
        whole = wires[name].whole
        whole.clear() if order == "cut" else whole.set()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
