"""A small PostgreSQL proxy that pools server connections by transaction, so tests can run behind a pooler."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import struct
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

PROTOCOL_3_0 = 196608
CANCEL_REQUEST = 80877102
SSL_REQUEST = 80877103
GSSENC_REQUEST = 80877104

# What a pooler takes without a session of its own; anything else (`options` above all) would be lost silently.
STARTUP_PARAMETERS = frozenset({"user", "database", "client_encoding", "application_name"})

# A server refuses a table name in three parts with 0A000, so sending this in place of a named Parse leaves the
# skipping up to Sync, the aborted transaction and the order of answers in a pipeline to the real server.
REFUSED_NAME = "the pooling proxy refuses named statements"
REFUSED_STATEMENT = f'SELECT FROM "-"."-"."{REFUSED_NAME}"'


class ServerUnavailableError(Exception):
    """The real server could not be reached, refused the start-up or asked for a password."""


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Return one protocol message with its type byte and length."""
    return kind + struct.pack("!i", len(body) + 4) + body


def error_response(code: str, text: str, *, severity: str = "ERROR") -> bytes:
    """Return an ErrorResponse with an SQLSTATE and a text."""
    fields = (b"S", severity), (b"V", severity), (b"C", code), (b"M", text)
    return message(b"E", b"".join(name + value.encode() + b"\0" for name, value in fields) + b"\0")


def error_text(body: bytes) -> str:
    """Return the human readable part of an ErrorResponse body."""
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return f"{fields.get(b'C', '')} {fields.get(b'M', '')}".strip()


def strings(body: bytes) -> list[str]:
    """Split a body of zero-terminated strings."""
    return [part.decode(errors="replace") for part in body.split(b"\0")]


async def read_message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read one typed message and return its type and body."""
    header = await reader.readexactly(5)
    (length,) = struct.unpack("!i", header[1:])
    return header[:1], await reader.readexactly(length - 4)


async def close_writer(writer: asyncio.StreamWriter) -> None:
    """Close a stream and wait until its transport has gone."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@dataclass(slots=True)
class ServerConnection:
    """One started connection to the real server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parameters: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Client:
    """One client connection and what it still waits for while it holds a server connection."""

    writer: asyncio.StreamWriter
    server: ServerConnection | None = None
    answers: asyncio.Task[None] | None = None
    outstanding: int = 0
    unsynced: bool = False


class PoolingProxy:
    """Listens on 127.0.0.1 and lends its server connections to clients for one transaction at a time."""

    def __init__(self, server_conninfo: str, *, server_connections: int = 1) -> None:
        """Keep what is needed to reach the server; nothing is opened before the proxy is started."""
        given = {name: str(value) for name, value in conninfo_to_dict(server_conninfo).items() if value is not None}
        self._user = given.get("user") or getpass.getuser()
        self._database = given.get("dbname") or self._user
        self._host = given.get("hostaddr") or given.get("host") or "localhost"
        self._server_port = int(given.get("port") or 5432)
        self._options = given.get("options", "")
        self._parameters: dict[str, str] = {}
        # An empty slot stands for a connection that was closed and is opened again for the next client.
        self._slots: deque[ServerConnection | None] = deque([None] * server_connections)
        self._waiting: deque[asyncio.Future[ServerConnection | None]] = deque()
        self._clients: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._next_process = 1
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self.port = 0
        self.round_trips = 0
        self.transactions = 0
        self.statements: list[str] = []

    @property
    def conninfo(self) -> str:
        """The connection string for clients of this proxy."""
        return make_conninfo("", host="127.0.0.1", port=self.port, user=self._user, dbname=self._database)

    def reset_counters(self) -> None:
        """Set the counters to zero and forget the statements seen so far."""
        self.round_trips = 0
        self.transactions = 0
        self.statements = []

    async def __aenter__(self) -> Self:
        """Open the server connections and listen on a free port."""
        try:
            for place in range(len(self._slots)):
                self._slots[place] = await self._open_server()
            self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        except (OSError, ServerUnavailableError):
            await self._close_servers()
            raise
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening, drop every client and close the server connections."""
        if self._listener is not None:
            self._listener.close()
        clients = list(self._clients)
        for task in clients:
            task.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
        if self._listener is not None:
            await self._listener.wait_closed()
        await self._close_servers()

    def start_in_thread(self) -> Self:
        """Run the proxy in a thread of its own and return when it listens."""
        started = threading.Event()
        failures: list[BaseException] = []

        async def run() -> None:
            self._stopping = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            try:
                async with self:
                    started.set()
                    await self._stopping.wait()
            except (OSError, ServerUnavailableError) as error:
                failures.append(error)
            finally:
                started.set()

        self._thread = threading.Thread(target=lambda: asyncio.run(run()), name="pooling-proxy", daemon=True)
        self._thread.start()
        started.wait()
        if failures:
            self._thread.join()
            self._thread = None
            raise failures[0]
        return self

    def stop(self) -> None:
        """End a proxy started with `start_in_thread` and wait for its thread."""
        if self._thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    async def _open_server(self) -> ServerConnection:
        """Connect to the real server and go through its start-up."""
        try:
            if self._host.startswith("/"):
                streams = await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._server_port}")
            else:
                streams = await asyncio.open_connection(self._host, self._server_port)
        except OSError as error:
            raise ServerUnavailableError(f"cannot connect to {self._host}:{self._server_port}: {error}") from error
        server = ServerConnection(*streams)
        try:
            await self._start_server(server)
        except (OSError, asyncio.IncompleteReadError) as error:
            await close_writer(server.writer)
            raise ServerUnavailableError(f"the server closed the connection during start-up: {error}") from error
        except ServerUnavailableError:
            await close_writer(server.writer)
            raise
        self._parameters = server.parameters
        return server

    async def _start_server(self, server: ServerConnection) -> None:
        """Send the StartupMessage and read up to the first ReadyForQuery."""
        wanted: Mapping[str, str] = {
            "user": self._user,
            "database": self._database,
            "client_encoding": "UTF8",
            "options": self._options,
        }
        pairs = "".join(f"{name}\0{value}\0" for name, value in wanted.items() if value)
        body = struct.pack("!i", PROTOCOL_3_0) + pairs.encode() + b"\0"
        server.writer.write(struct.pack("!i", len(body) + 4) + body)
        while True:
            kind, body = await read_message(server.reader)
            if kind == b"R" and body != struct.pack("!i", 0):
                raise ServerUnavailableError("the server asks for a password; only trust authentication is supported")
            if kind == b"E":
                raise ServerUnavailableError(error_text(body))
            if kind == b"S":
                name, value, *_ = strings(body)
                server.parameters[name] = value
            if kind == b"Z":
                return

    async def _close_servers(self) -> None:
        """Say good-bye on every idle server connection."""
        for server in self._slots:
            if server is not None:
                server.writer.write(message(b"X"))
                await close_writer(server.writer)
        self._slots = deque([None] * len(self._slots))

    async def _acquire(self) -> ServerConnection:
        """Wait in line for a slot and return its connection, opened anew where the last one was closed."""
        if self._slots and not self._waiting:
            server = self._slots.popleft()
        else:
            turn: asyncio.Future[ServerConnection | None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                server = await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._give_back(turn.result())
                raise
        if server is not None:
            return server
        try:
            return await self._open_server()
        except (ServerUnavailableError, asyncio.CancelledError):
            self._give_back(None)
            raise

    def _give_back(self, server: ServerConnection | None) -> None:
        """Hand a slot to the client that has waited longest, or keep it for the next one."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(server)
                return
        self._slots.append(server)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new client in a task that ends with the proxy at the latest."""
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start a client up, carry its messages until it leaves, and clean up behind it."""
        client = Client(writer)
        try:
            if await self._start_client(reader, writer):
                await self._carry(client, reader)
        except (OSError, asyncio.IncompleteReadError):
            pass  # a client may leave at any moment; what it left behind is dealt with below
        except ServerUnavailableError as error:
            with contextlib.suppress(OSError):
                writer.write(error_response("08006", str(error), severity="FATAL"))
                await writer.drain()
        finally:
            writer.close()
            await self._abandon(client)
            await close_writer(writer)

    async def _start_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the start-up packets and tell whether a session has begun."""
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code not in (SSL_REQUEST, GSSENC_REQUEST):
                break
            writer.write(b"N")
        if code == CANCEL_REQUEST:
            return False
        texts = strings(body[4:])
        asked = {name: value for name, value in zip(texts[::2], texts[1::2], strict=False) if name}
        refusal = self._refuse(code, asked)
        if refusal is not None:
            writer.write(refusal)
            await writer.drain()
            return False
        extensions = [name for name in asked if name.startswith("_pq_.")]
        if code != PROTOCOL_3_0 or extensions:
            names = b"".join(name.encode() + b"\0" for name in extensions)
            writer.write(message(b"v", struct.pack("!ii", PROTOCOL_3_0, len(extensions)) + names))
        writer.write(message(b"R", struct.pack("!i", 0)))
        for name, value in self._parameters.items():
            writer.write(message(b"S", f"{name}\0{value}\0".encode()))
        writer.write(message(b"K", struct.pack("!ii", self._next_process, 0)))
        self._next_process += 1
        writer.write(message(b"Z", b"I"))
        await writer.drain()
        return True

    def _refuse(self, code: int, asked: dict[str, str]) -> bytes | None:
        """Return the error for a start-up this pool cannot honour, or None."""
        if code >> 16 != PROTOCOL_3_0 >> 16:
            return error_response("08P01", "only protocol 3 is supported", severity="FATAL")
        user = asked.get("user", "")
        database = asked.get("database", user)
        # All clients share connections of one role: letting another one in would hide a wrong role from a test.
        if (user, database) != (self._user, self._database):
            text = f"this pool is for user {self._user!r} and database {self._database!r}"
            return error_response("28000", f"{text}, not {user!r} and {database!r}", severity="FATAL")
        for name in asked:
            if name not in STARTUP_PARAMETERS and not name.startswith("_pq_."):
                return error_response("08P01", f"unsupported startup parameter: {name}", severity="FATAL")
        return None

    async def _carry(self, client: Client, reader: asyncio.StreamReader) -> None:
        """Carry messages to the server, taking a connection when the client has none."""
        while True:
            kind, body = await read_message(reader)
            if kind == b"X":
                return
            if kind == b"P":
                name, statement, *_ = strings(body)
                self.statements.append(statement)
                if name:
                    body = b"\0" + REFUSED_STATEMENT.encode() + b"\0" + struct.pack("!h", 0)
            elif kind == b"Q":
                self.statements.append(strings(body)[0])
            if client.server is None:
                client.server = await self._acquire()
                client.answers = asyncio.get_running_loop().create_task(self._answer(client, client.server))
            # Counted before the message can be answered, and without a pause since the link was looked at.
            if kind in b"QSF":
                client.outstanding += 1
                client.unsynced = False
            elif kind in b"PBDECH":
                client.unsynced = True
            server = client.server
            server.writer.write(message(kind, body))
            await server.writer.drain()

    async def _answer(self, client: Client, server: ServerConnection) -> None:
        """Carry answers to the client until its transaction is over, then give the connection back."""
        try:
            while True:
                kind, body = await read_message(server.reader)
                if kind == b"E" and REFUSED_NAME.encode() in body:
                    refusal = "a named prepared statement needs a session, and this pool has only transactions"
                    client.writer.write(error_response("0A000", refusal))
                elif kind != b"Z":
                    client.writer.write(message(kind, body))
                else:
                    client.outstanding -= 1
                    self.round_trips += 1
                    self.transactions += body == b"I"
                    over = body == b"I" and client.outstanding == 0 and not client.unsynced
                    if over:
                        client.server = client.answers = None
                        self._give_back(server)
                    client.writer.write(message(kind, body))
                    if over:
                        return
                await client.writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            # One side has gone: closing the client makes `_serve` clean up both.
            client.writer.close()

    async def _abandon(self, client: Client) -> None:
        """Close the server connection of a client that left in the middle of something, and free its slot."""
        server, client.server = client.server, None
        if server is None or client.answers is None:
            return
        # Once cancelled, that task can no longer give the connection back, so closing it here is safe.
        client.answers.cancel()
        server.writer.close()
        self._give_back(None)
        await asyncio.gather(client.answers, return_exceptions=True)
        await close_writer(server.writer)
