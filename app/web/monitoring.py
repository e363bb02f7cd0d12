"""A small HTTP server for /health, /ready and /metrics on a port of its own, apart from the API and its callers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import msgspec
import uuid_utils

from app.config import Settings
from app.db.database import Database
from app.errors import AppError, BadRequest, NotFound, StartupError
from app.telemetry.metrics import CONTENT_TYPE
from app.web.envelope import encode_error
from app.web.health import MetricsReader, ReadinessCheck

MAX_HEAD_BYTES = 16 * 1024
MAX_WAITING = 64
HEAD_SECONDS = 5.0
TOTAL_SECONDS = 20.0
JSON = "application/json"


class MethodNotAllowed(AppError):
    status = 405
    default_code = "method_not_allowed"


class _Answer(msgspec.Struct, frozen=True):
    body: bytes
    status: int = 200
    content_type: str = JSON


class MonitoringServer:
    """Answers one request for each connection, with bounds of size, time and connections."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._readiness = ReadinessCheck(db, strict=settings.rls_policy_strict)
        self._metrics = MetricsReader(db, settings.metrics_token)
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read the head of a request, answer it and close the connection."""
        try:
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(TOTAL_SECONDS):
                    head = await self._read_head(reader, writer)
                    writer.write(await self._respond(head, client=writer.get_extra_info("peername")[0]))
                    await writer.drain()
        finally:
            writer.close()

    async def _read_head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if len(self._waiting) >= MAX_WAITING:
            # The one that has been silent longest makes room, so that idle connections cannot keep probes out.
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()
        self._waiting[writer] = None
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                return await reader.readuntil(b"\r\n\r\n")
        finally:
            self._waiting.pop(writer, None)

    async def _respond(self, head: bytes, *, client: str) -> bytes:
        """Return the whole response to the head of a request."""
        headers: dict[str, str] = {}
        try:
            method, path, given = _parse_head(head)
            answer = await self._answer(method, path, given, client=client)
        except AppError as problem:
            method, headers = "", problem.headers
            answer = _Answer(encode_error(problem, str(uuid_utils.uuid7())), problem.status)
        lines = [
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
            f"content-type: {answer.content_type}",
            f"content-length: {len(answer.body)}",
            "connection: close",
            "cache-control: no-store",
            "x-content-type-options: nosniff",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else answer.body)

    async def _answer(self, method: str, path: str, headers: dict[str, str], *, client: str) -> _Answer:
        if path not in {"/health", "/ready", "/metrics"}:
            raise NotFound("There is no such path; this port has /health, /ready and /metrics.")
        if method not in {"GET", "HEAD"}:
            raise MethodNotAllowed("This path does not support the method; use GET.")
        if path == "/health":
            return _Answer(msgspec.json.encode(self._readiness.health))
        if path == "/ready":
            state = await self._readiness.run()
            return _Answer(msgspec.json.encode(state), 200 if state.status == "ready" else 503)
        return _Answer(await self._metrics.read(headers, client=client), 200, f"{CONTENT_TYPE}; charset=utf-8")


def _parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Return the method, the path without its query, and the headers by their names in lower case."""
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequest("The request is not HTTP/1.1.", code="invalid_request")
    pairs = (line.partition(":") for line in lines)
    return parts[0], parts[1].partition("?")[0], {name.strip().lower(): value.strip() for name, _, value in pairs}


@asynccontextmanager
async def monitoring(db: Database, settings: Settings) -> AsyncGenerator[None]:
    """Listen on HOST and MONITORING_PORT for the block, or on nothing when the port is 0."""
    if settings.monitoring_port == 0:
        yield
        return
    server = MonitoringServer(db, settings)
    try:
        listening = await asyncio.start_server(
            server.handle,
            settings.host,
            settings.monitoring_port,
            limit=MAX_HEAD_BYTES,
            # The API processes of one service share the port.
            reuse_port=settings.web_processes > 1,
        )
    except OSError as problem:
        raise StartupError(
            f"{settings.host}:{settings.monitoring_port} cannot be used ({problem.strerror}). "
            "Set MONITORING_PORT to a free port or to 0, or HOST to an address of this machine.",
            code="port_unusable",
        ) from problem
    try:
        yield
    finally:
        listening.close()
