"""A small closed-loop HTTP load: raw sockets and keep-alive, so that the client costs little beside the server."""

import asyncio
import time
from urllib.parse import urlsplit


def hammer(url: str, path: str, headers: dict[str, str], *, seconds: float, connections: int) -> float:
    """Requests a second that were answered with 200, over so many connections at once."""
    return asyncio.run(_hammer(url, path, headers, seconds, connections))


async def _hammer(url: str, path: str, headers: dict[str, str], seconds: float, connections: int) -> float:
    target = urlsplit(url)
    lines = [f"GET {path} HTTP/1.1", f"Host: {target.netloc}", *(f"{name}: {value}" for name, value in headers.items())]
    request = "\r\n".join([*lines, "", ""]).encode()
    started = time.perf_counter()
    end = started + seconds
    counts = await asyncio.gather(*(_client(target.hostname, target.port, request, end) for _ in range(connections)))
    return sum(counts) / (time.perf_counter() - started)


async def _client(host: str | None, port: int | None, request: bytes, end: float) -> int:
    reader, writer = await asyncio.open_connection(host, port)
    answered = 0
    try:
        while time.perf_counter() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            if not head.startswith(b"HTTP/1.1 200"):
                raise AssertionError(head.decode())
            answered += 1
    finally:
        writer.close()
        await writer.wait_closed()
    return answered
