"""A provider's HTTP server on the loopback address that answers from a script and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    # Sent instead of the body, without a length: for answers that are no JSON, or do not end.
    raw: bytes | None = None
    repeat: int = 1
    pause: float = 0.0


@dataclass
class Loopback:
    url: str
    answer: Callable[[Asked], Answer]
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(head[0].split(" ")[1], headers, json.loads(body))
            self.asked.append(asked)
            answer = self.answer(asked)
            await asyncio.sleep(answer.delay)
            await self._write(writer, answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @staticmethod
    async def _write(writer: asyncio.StreamWriter, answer: Answer) -> None:
        lines = [f"HTTP/1.1 {answer.status} Scripted", "connection: close"]
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        content = json.dumps(answer.body).encode() if answer.raw is None else answer.raw
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        for _ in range(answer.repeat):
            writer.write(content)
            await writer.drain()
            await asyncio.sleep(answer.pause)


@asynccontextmanager
async def listening(answer: Callable[[Asked], Answer]) -> AsyncIterator[Loopback]:
    """A server that answers each request with what the script says."""
    loopback = Loopback("", answer)
    server = await asyncio.start_server(loopback.serve, "127.0.0.1", 0)
    loopback.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield loopback


def in_turn(*answers: Answer) -> Callable[[Asked], Answer]:
    """A script of answers, one for each request; the last one stays."""
    left = list(answers)
    return lambda asked: left.pop(0) if len(left) > 1 else left[0]
