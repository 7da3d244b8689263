"""TCP proxy between deltamirror and one broker, which can be cut, paused and repaired."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

HOST = "127.0.0.1"
CALL_SECONDS = 10
PIECE = 1 << 16


class Proxy:
    """Forward connections to 127.0.0.1:*port* to 127.0.0.1:*upstream*, in a thread."""

    def __init__(self, port: int, upstream: int) -> None:
        self.port, self._upstream = port, upstream
        self._is_cut = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        try:
            self._server = self._do(asyncio.start_server(self._serve, HOST, port))
        except BaseException:
            self._end_loop()
            raise

    def cut(self) -> None:
        """Reset every connection, and every new one, until `heal`."""
        self._is_cut = True
        self._do(self._reset())

    def hush(self) -> None:
        """Leave connections open and forward nothing, until `heal`: a network that drops all."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def heal(self) -> None:
        """Forward bytes and new connections again; bytes that were held back arrive late."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._flowing.set)

    def close(self) -> None:
        """Close the proxy permanently."""
        self._do(self._shut())
        self._end_loop()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self._open.add(writer)
        try:
            if self._is_cut:
                return
            onward_reader, onward = await asyncio.open_connection(HOST, self._upstream)
            ends.append(onward)
            self._open.add(onward)
            # When one side closes, both are closed.
            await asyncio.gather(self._pump(reader, onward), self._pump(onward_reader, writer))
        except OSError:
            pass  # The broker is down, one side has closed, or the proxy is cut.
        finally:
            for end in ends:
                end.transport.abort()
                self._open.discard(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(PIECE):
            await self._flowing.wait()
            writer.write(piece)
            await writer.drain()
        raise ConnectionResetError

    async def _reset(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _shut(self) -> None:
        self._server.close()
        rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
