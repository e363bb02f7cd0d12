"""A server that is too old is named as such by every command, before anything else of it is looked at."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.db.server import check_version
from app.errors import StartupError
from tests.conftest import TestDatabase, as_url
from tests.service import free_port, palimpsest

FOUND = "The database server is PostgreSQL 15.13, and Palimpsest needs PostgreSQL 16 or newer; upgrade the server"


class OldServer:
    """Passes on what a client and the real server say, except that the server reports to be PostgreSQL 15.13."""

    def __init__(self, conninfo: str) -> None:
        parts = conninfo_to_dict(conninfo)
        host, port = str(parts["host"]), int(parts.get("port") or 5432)
        self._real: tuple[int, Any] = (
            (socket.AF_UNIX, f"{host}/.s.PGSQL.{port}") if host.startswith("/") else (socket.AF_INET, (host, port))
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        # Encryption is negotiated before the first message.
        plain = {"sslmode": "disable", "gssencmode": "disable"}
        port = str(self._listener.getsockname()[1])
        self.conninfo = make_conninfo(conninfo, host="127.0.0.1", port=port, **plain)
        self.url = f"{as_url(make_conninfo(conninfo, host='127.0.0.1', port=port))}?{urlencode(plain)}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(self._real[0])
                server.connect(self._real[1])
                threading.Thread(target=self._copy, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), closing(target):
            while data := source.recv(65536):
                target.sendall(data)

    @staticmethod
    def _answer(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError, struct.error), closing(client), server.makefile("rb") as stream:
            while head := stream.read(5):
                body = stream.read(struct.unpack("!i", head[1:])[0] - 4)
                if head[:1] == b"S" and body.startswith(b"server_version\0"):
                    body = b"server_version\0" + b"15.13\0"
                client.sendall(head[:1] + struct.pack("!i", len(body) + 4) + body)


@pytest.fixture(scope="module")
def old_server(database: TestDatabase) -> Iterator[dict[str, OldServer]]:
    """The module's database behind a server that says to be too old, by the names of settings."""
    with closing(OldServer(database.app)) as app, closing(OldServer(database.superuser)) as superuser:
        yield {"DATABASE_URL": app, "DATABASE_MIGRATION_URL": superuser}


def test_the_versions_that_are_refused(database: TestDatabase, old_server: dict[str, OldServer]) -> None:
    with psycopg.connect(database.app) as connection:
        check_version(connection.info)
    with (
        psycopg.connect(old_server["DATABASE_URL"].conninfo) as connection,
        pytest.raises(StartupError, match=r"15\.13") as problem,
    ):
        check_version(connection.info)
    assert problem.value.details == {"found": 150013, "needed": 160000}


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        (["migrate"], ("DATABASE_MIGRATION_URL",)),
        (["serve", "--no-worker"], ("DATABASE_URL",)),
        (["serve", "--no-worker"], ("DATABASE_URL", "DATABASE_MIGRATION_URL")),
        (["worker"], ("DATABASE_URL",)),
    ],
)
def test_a_command_names_the_version_found_and_the_one_needed(
    old_server: dict[str, OldServer], command: list[str], variables: tuple[str, ...]
) -> None:
    urls = {name: old_server[name].url for name in variables}
    ended = palimpsest(*command, PORT=str(free_port()), **urls)
    assert ended.returncode == 1
    assert FOUND in ended.stderr
    assert "(server_too_old)" in ended.stderr
    assert "pgvector" not in ended.stderr


def test_the_doctor_names_nothing_else(old_server: dict[str, OldServer]) -> None:
    report = palimpsest("doctor", DATABASE_URL=old_server["DATABASE_URL"].url)
    assert report.returncode == 1
    assert report.stdout.splitlines() == [
        "FAIL  database version: PostgreSQL 15.13",
        "      -> Palimpsest needs PostgreSQL 16 or newer; upgrade the server, or name another one in DATABASE_URL",
        "something needs attention",
    ]
