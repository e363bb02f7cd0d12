"""Whatever is sent, the answer is an error in the envelope, never a 5xx, and nothing is stored."""

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from psycopg import sql

from app.access import Principal
from app.paging import CursorSigner, Page
from app.tenancy.schemas import RateLimits
from tests.conftest import PLATFORM_KEY, Tenancy, TestDatabase
from tests.long import ALL_HEALTH_CHECKS, sized
from tests.service import RunningService

MAX_BODY = 8 * 1024 * 1024
UNLIMITED = RateLimits(read=0, write=0, admin=0)
TABLES = """
    SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'public' AND c.relkind = 'r' AND c.relname <> 'rate_windows'"""
CONTENT = sql.SQL(
    "SELECT {name}, md5(coalesce(string_agg((to_jsonb(t) - 'last_used_at')::text, ',' ORDER BY to_jsonb(t)::text), ''))"
    " FROM {table} t"
)


@dataclass(frozen=True)
class Answer:
    """What came back over the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error inside a well-formed envelope."""
        assert self.headers["content-type"] == "application/json"
        document = json.loads(self.body)
        assert set(document) == {"error"}
        assert set(document["error"]) == {"code", "message", "request_id", "details"}
        assert document["error"]["request_id"] == self.headers["x-request-id"]
        assert document["error"]["code"]
        assert document["error"]["message"]
        assert isinstance(document["error"]["details"], dict)
        return document["error"]


@dataclass(frozen=True)
class Target:
    """A running service, the keys to it, and what there is in its database."""

    port: int
    database: psycopg.Connection[Any]
    keys: dict[str, str]
    places: dict[str, str]

    def exchange(self, sent: bytes, *, end: bool = False) -> Answer | None:
        """Sends bytes as they are and reads the answer; None when the connection was closed without one."""
        received = b""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            # A server that has seen enough answers and hangs up; what it said can still be read.
            with suppress(OSError):
                connection.sendall(sent)
                if end:
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while more := connection.recv(65536):
                    received += more
        if not received:
            return None
        head, _, body = received.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Answer(int(first.split(" ")[1]), headers, body)

    def request(
        self, method: str, path: str | bytes, body: bytes = b"", *, key: str | None = "admin", **headers: bytes
    ) -> bytes:
        """A request as bytes; header names are written with _ for -."""
        place = path if isinstance(path, bytes) else path.format_map(self.places).encode()
        given = {"host": b"palimpsest", "connection": b"close"}
        if key is not None:
            given["authorization"] = b"Bearer " + self.keys[key].encode()
        if key is not None and "admin" in key:
            given["x-project-id"] = b"default"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if "content-length" not in given and "transfer-encoding" not in given:
            given["content-length"] = str(len(body)).encode()
        lines = [name.encode() + b": " + value for name, value in given.items()]
        return b"\r\n".join([method.encode() + b" " + place + b" HTTP/1.1", *lines, b"", body])

    def send(self, method: str, path: str | bytes, body: bytes = b"", **rest: Any) -> Answer:
        """Sends a request and reads its answer."""
        answer = self.exchange(self.request(method, path, body, **rest))
        assert answer is not None, "the connection was closed without an answer"
        return answer

    def stored(self) -> dict[str, str]:
        """A fingerprint of each table; how often a key was used is none of the content."""
        names = [name for (name,) in self.database.execute(TABLES)]
        parts = [CONTENT.format(name=sql.Literal(name), table=sql.Identifier(name)) for name in names]
        return dict(self.database.execute(sql.SQL(" UNION ALL ").join(parts)).fetchall())

    def refuse(self, method: str, path: str | bytes, body: bytes = b"", **rest: Any) -> dict[str, Any]:
        """Sends what has to be refused: a 4xx in the envelope, and nothing stored. Answers the error."""
        before = self.stored()
        answer = self.send(method, path, body, **rest)
        assert 400 <= answer.status < 500, (answer.status, answer.body)
        error = answer.error
        assert self.stored() == before
        return {"status": answer.status, **error}


@pytest.fixture(scope="module")
def target(database: TestDatabase, tenancy: Tenancy, service: RunningService) -> Iterator[Target]:
    """Two tenants with keys, a garden, a spare key to rotate and a job that has ended."""
    tenancy.tenant("acme", "default", "other")
    tenancy.tenant("rival", "default")
    keys = {
        "platform": PLATFORM_KEY,
        "admin": tenancy.key("acme", kind="admin", rate_limits=UNLIMITED),
        "second_admin": tenancy.key("acme", kind="admin", rate_limits=UNLIMITED),
        "agent": tenancy.key("acme", rate_limits=UNLIMITED),
        "rival_admin": tenancy.key("rival", kind="admin", rate_limits=UNLIMITED),
    }
    spare = tenancy.issue("acme", agent_id="spare")
    headers = {"Authorization": f"Bearer {keys['agent']}"}
    for slug in ("first", "second"):
        made = httpx.post(f"{service.url}/v1/gardens", json={"slug": slug}, headers=headers)
        assert made.status_code == 201
    places = {"garden": made.json()["garden"]["garden_id"], "spare": spare["key_id"], "job": str(uuid4())}
    with psycopg.connect(database.superuser, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO jobs (tenant_id, job_id, project_id, agent_id, kind, status, payload, available_at, "
            "created_by, created_at, finished_at) VALUES ('acme', %s, 'default', 'robin', 'maintenance', 'completed', "
            "'{}', now(), 'tests', now(), now())",
            (places["job"],),
        )
        yield Target(int(service.url.rpartition(":")[2]), connection, keys, places)


@dataclass(frozen=True)
class Write:
    """A route that takes a body, with one it would accept."""

    method: str
    path: str
    key: str
    body: dict[str, Any]
    required: tuple[str, ...] = ()
    optional_body: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


WRITES = [
    Write("POST", "/v1/admin/tenants", "platform", {"tenant_id": "new-tenant", "name": "n"}, ("tenant_id",)),
    Write("POST", "/v1/admin/projects", "admin", {"project_id": "new-project", "name": "n"}, ("project_id",)),
    Write(
        "POST",
        "/v1/admin/keys",
        "admin",
        {
            "kind": "agent",
            "agent_id": "new-agent",
            "project_id": "default",
            "scopes": ["notes:read"],
            "name": "n",
            "expires_at": "2999-01-01T00:00:00Z",
            "rate_limits": {"read": 5},
            "tenant_id": "acme",
        },
        ("agent_id",),
    ),
    Write("POST", "/v1/admin/keys/{spare}/rotate", "admin", {"grace_seconds": 5}, optional_body=True),
    Write("POST", "/v1/gardens", "agent", {"slug": "new", "name": "n", "scope": "team", "description": "d"}, ("slug",)),
    Write("PATCH", "/v1/gardens/{garden}", "agent", {"name": "n", "description": "d"}),
    Write("PUT", "/v1/gardens/{garden}/members/someone", "agent", {"role": "reader"}, ("role",)),
]
LISTS = ["/v1/admin/keys", "/v1/admin/projects", "/v1/gardens", "/v1/gardens/{garden}/members", "/v1/jobs"]
each_write = pytest.mark.parametrize("write", WRITES, ids=str)
each_list = pytest.mark.parametrize("path", LISTS)


def as_json(document: Any) -> bytes:
    """A document as bytes; lone surrogates are escaped, as any JSON writer would."""
    return json.dumps(document).encode()


# Bodies that are no JSON, or not the JSON that was asked for

MALFORMED = {
    "one brace": b"{",
    "cut short": b'{"name": "n',
    "no quotes": b"{name: 1}",
    "single quotes": b"{'name': 'n'}",
    "comma at the end": b'{"name": "n",}',
    "something after": b'{"name": "n"} x',
    "two documents": b'{"name": "n"}{"name": "n"}',
    "a byte order mark": b'\xef\xbb\xbf{"name": "n"}',
    "utf-16": '{"name": "n"}'.encode("utf-16"),
    "only spaces": b"   ",
    "binary": bytes(range(256)),
    "form": b"slug=new&name=n&role=reader",
    "xml": b"<name>n</name>",
    "msgpack": b"\x81\xa4name\xa1n",
    "NaN": b'{"name": NaN}',
    "Infinity": b'{"name": Infinity}',
    "-Infinity": b'{"name": -Infinity}',
    "1e999": b'{"name": 1e999}',
    "-1e999": b'{"name": -1e999}',
    "number with a leading zero": b'{"name": 01}',
    "hexadecimal": b'{"name": 0x10}',
    "raw control character": b'{"name": "a\x01b"}',
    "raw NUL": b'{"name": "a\0b"}',
    "nothing but NUL": b"\0",
    "invalid UTF-8": b'{"name": "a\xff\xfeb"}',
    "overlong UTF-8": b'{"name": "a\xc0\x80b"}',
    "UTF-8 cut short": b'{"name": "a\xe2\x82"}',
    "surrogate in UTF-8": b'{"name": "a\xed\xa0\x80b"}',
    "lone high surrogate": b'{"name": "a\\ud800b"}',
    "lone low surrogate": b'{"name": "a\\udc00b"}',
    "swapped surrogates": b'{"name": "\\udc00\\ud800"}',
    "lone surrogate in a key": b'{"a\\ud800": 1}',
}
NOT_AN_OBJECT = {
    "array": b"[]",
    "array of objects": b'[{"name": "n"}]',
    "string": b'"name"',
    "number": b"5",
    "true": b"true",
    "big number": b"1" + b"0" * 400,
}
DEEP = {
    "arrays": (b"[", b"]", b"1"),
    "objects": (b'{"a":', b"}", b"1"),
    "arrays around NUL": (b"[", b"]", b'"\\u0000"'),
}


@each_write
@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_a_body_that_is_no_json_is_refused(target: Target, write: Write, body: bytes) -> None:
    error = target.refuse(write.method, write.path, body, key=write.key, content_type=b"application/json")
    assert (error["status"], error["code"]) == (400, "malformed_json")


@each_write
@pytest.mark.parametrize("body", NOT_AN_OBJECT.values(), ids=NOT_AN_OBJECT)
def test_json_that_is_no_object_is_refused(target: Target, write: Write, body: bytes) -> None:
    error = target.refuse(write.method, write.path, body, key=write.key)
    assert (error["status"], error["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("write", [write for write in WRITES if not write.optional_body], ids=str)
@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_missing_body_is_refused_in_words(target: Target, write: Write, body: bytes) -> None:
    error = target.refuse(write.method, write.path, body, key=write.key)
    assert (error["status"], error["code"]) == (400, "invalid_request")
    assert error["message"] != "data: 'data'"


@each_write
@pytest.mark.parametrize("depth", [300, 5_000, 200_000])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_nesting_is_refused(target: Target, write: Write, kind: str, depth: int) -> None:
    opening, closing, heart = DEEP[kind]
    body = b'{"name": ' + opening * depth + heart + closing * depth + b"}"
    assert target.refuse(write.method, write.path, body, key=write.key)["status"] == 400
    repeatable = target.refuse(write.method, write.path, body, key=write.key, idempotency_key=b"deep")
    assert repeatable["status"] == 400


@each_write
@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**400], ids=["2^63", "2^64", "-2^63-1", "10^400"])
def test_huge_numbers_are_refused(target: Target, write: Write, number: int) -> None:
    for field in write.body:
        value = {"read": number} if field == "rate_limits" else [number] if field == "scopes" else number
        body = as_json({**write.body, field: value})
        for headers in ({}, {"idempotency_key": b"huge"}):
            assert target.refuse(write.method, write.path, body, key=write.key, **headers)["status"] == 400


@each_write
def test_an_unknown_field_is_refused_by_name(target: Target, write: Write) -> None:
    error = target.refuse(write.method, write.path, as_json({**write.body, "surprise": 1}), key=write.key)
    assert (error["status"], error["code"]) == (400, "invalid_request")
    assert "surprise" in error["message"]


def test_an_unknown_field_inside_a_field_is_refused(target: Target) -> None:
    body = as_json({"agent_id": "wren", "rate_limits": {"surprise": 1}})
    assert target.refuse("POST", "/v1/admin/keys", body)["status"] == 400


@pytest.mark.parametrize("write", [write for write in WRITES if write.required], ids=str)
def test_a_missing_field_is_refused_by_name(target: Target, write: Write) -> None:
    for field in write.required:
        body = {name: value for name, value in write.body.items() if name != field}
        error = target.refuse(write.method, write.path, as_json(body), key=write.key)
        assert (error["status"], error["code"]) == (400, "invalid_request")
        assert field in error["message"]


TEXTS = {"tenant_id", "project_id", "agent_id", "kind", "name", "slug", "scope", "description", "role"}
NULLABLE = {"agent_id", "project_id", "scopes", "expires_at", "tenant_id"}
NO_TEXT: list[Any] = [5, 1.5, True, [], {}, ["n"], {"n": 1}]
WRONG: dict[str, list[Any]] = {
    "scopes": [5, True, "notes:read", {}, [5], [None], [["notes:read"]], ["x" * 65], ["notes:read"] * 33],
    "expires_at": [True, [], {}, "", "soon", "null", "2999-01-01", "2999-13-01T00:00:00Z", "infinity", 253402300800],
    "rate_limits": [5, True, "5", [], {"read": "5"}, {"read": True}, {"read": 1.5}, {"read": []}, {"read": -1}],
    "grace_seconds": ["5", "", True, None, 1.5, [], {}, -1, 604801],
}
WRONG_TYPES = [
    pytest.param(write, field, value, id=f"{write} {field}={json.dumps(value)[:30]}")
    for write in WRITES
    for field in write.body
    for value in WRONG.get(field, [*NO_TEXT, *([] if field in NULLABLE and write.key == "admin" else [None])])
]


@pytest.mark.parametrize(("write", "field", "value"), WRONG_TYPES)
def test_a_field_of_the_wrong_type_is_refused_by_name(target: Target, write: Write, field: str, value: Any) -> None:
    error = target.refuse(write.method, write.path, as_json({**write.body, field: value}), key=write.key)
    assert (error["status"], error["code"]) == (400, "invalid_request")
    assert field in error["message"]


@each_write
def test_nul_characters_are_refused_wherever_they_are(target: Target, write: Write) -> None:
    for field, value in write.body.items():
        within = [f"a\0{value}"] if isinstance(value, list) else f"{value}\0"
        for document in ({**write.body, field: within}, {**write.body, f"{field}\0": value}, {"\0": {"\0": ["\0"]}}):
            error = target.refuse(write.method, write.path, as_json(document), key=write.key)
            assert (error["status"], error["code"]) == (400, "invalid_text")


IDS = {
    "trailing newline": "abc\n",
    "leading newline": "\nabc",
    "carriage return": "abc\r",
    "line separator": "abc\u2028",
    "trailing space": "abc ",
    "empty": "",
    "slash": "a/b",
    "cyrillic a": "\u0430bc",
    "fullwidth a": "\uff41bc",
    "dotless i": "\u0131d",
    "long s": "\u017fid",
    "kelvin sign": "\u212aey",
    "arabic digit": "a\u0663",
    "superscript two": "a\u00b2",
    "zero width space": "a\u200bb",
    "right-to-left override": "a\u202eb",
    "combining accent": "e\u0301",
    "soft hyphen": "a\u00adb",
    "emoji": "a\U0001f98a",
    "very long": "a" * 100_000,
}


@pytest.mark.parametrize("text", IDS.values(), ids=IDS)
@pytest.mark.parametrize(
    ("write", "field"),
    [(WRITES[0], "tenant_id"), (WRITES[1], "project_id"), (WRITES[2], "agent_id"), (WRITES[4], "slug")],
    ids=["tenant_id", "project_id", "agent_id", "slug"],
)
def test_ids_that_only_look_like_ids_are_refused(target: Target, write: Write, field: str, text: str) -> None:
    error = target.refuse(write.method, write.path, as_json({**write.body, field: text}), key=write.key)
    assert (error["status"], error["code"]) == (400, "invalid_request")
    assert field in error["message"]


@pytest.mark.parametrize(
    "agent",
    ["%C3%A9", "a%20b", "robin%0A", "%D0%B0", "a%2Fb", "..%2F..", "%2E%2E", "%25", "a+b", "x" * 129, "%F0%9F%A6%8A"],
)
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_members_are_not_named_by_what_is_no_agent_id(target: Target, method: str, agent: str) -> None:
    path = "/v1/gardens/{garden}/members/" + agent
    assert target.refuse(method, path, b'{"role": "admin"}', key="agent")["status"] in {400, 404}


# The form of a body


@each_write
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/x-www-form-urlencoded", b"slug=new&name=n&role=reader&tenant_id=new-tenant"),
        (
            b"multipart/form-data; boundary=x",
            b'--x\r\ncontent-disposition: form-data; name="slug"\r\n\r\nnew\r\n--x--\r\n',
        ),
        (b"application/x-msgpack", b"\x81\xa4slug\xa3new"),
        (b"multipart/form-data", b"--x--"),
    ],
)
def test_a_form_is_not_taken_for_json(target: Target, write: Write, kind: bytes, body: bytes) -> None:
    error = target.refuse(write.method, write.path, body, key=write.key, content_type=kind)
    assert error["status"] in {400, 415}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"])
def test_json_is_json_whatever_its_content_type_says(tenancy: Tenancy, client: httpx.Client, kind: str) -> None:
    """`curl -d` announces a form; the key in the header already rules out what a foreign page could send."""
    tenancy.tenant("typed")
    headers = {"Authorization": f"Bearer {tenancy.key('typed')}", "Content-Type": kind}
    answer = client.post("/v1/gardens", content=b'{"slug": "g%d"}' % len(kind), headers=headers)
    assert answer.status_code == 201


def chunked(body: bytes, size: int = 65536) -> bytes:
    """A body in chunks, without the one that ends it."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(f"{len(part):x}\r\n".encode() + part + b"\r\n" for part in parts)


@each_write
def test_a_body_announced_over_the_limit_is_refused_unread(target: Target, write: Write) -> None:
    length = str(MAX_BODY + 1).encode()
    error = target.refuse(write.method, write.path, b'{"name": "', key=write.key, content_length=length)
    assert (error["status"], error["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("headers", [{}, {"idempotency_key": b"large"}], ids=["once", "repeatable"])
def test_a_body_that_grows_over_the_limit_is_refused(target: Target, headers: dict[str, bytes]) -> None:
    body = chunked(b'{"slug": "large", "name": "' + b"a" * MAX_BODY)
    error = target.refuse("POST", "/v1/gardens", body, key="agent", transfer_encoding=b"chunked", **headers)
    assert (error["status"], error["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("in_chunks", [False, True], ids=["with its length", "in chunks"])
def test_a_body_of_exactly_the_limit_is_read(target: Target, in_chunks: bool) -> None:
    body = as_json({"slug": f"full-{secrets.token_hex(4)}"}).ljust(MAX_BODY)
    if in_chunks:
        answer = target.send(
            "POST", "/v1/gardens", chunked(body) + b"0\r\n\r\n", key="agent", transfer_encoding=b"chunked"
        )
    else:
        answer = target.send("POST", "/v1/gardens", body, key="agent")
    assert answer.status == 201


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content_length": b"500"}, b'{"slug": "half"}'),
        ({"transfer_encoding": b"chunked"}, chunked(b'{"slug": "half"}')),
        ({"transfer_encoding": b"chunked"}, b'zz\r\n{"slug": "half"}\r\n0\r\n\r\n'),
        ({"transfer_encoding": b"chunked"}, b'ffffffffffffffffff\r\n{"slug": "half"}\r\n0\r\n\r\n'),
    ],
    ids=["shorter than announced", "chunks without an end", "chunk of no length", "chunk of absurd length"],
)
@pytest.mark.parametrize("extra", [{}, {"idempotency_key": b"half"}], ids=["once", "repeatable"])
def test_a_body_that_breaks_off_is_the_callers_fault(
    target: Target, service: RunningService, headers: dict[str, bytes], body: bytes, extra: dict[str, bytes]
) -> None:
    before = target.stored()
    failures = service.output().count("request_failed")
    sent = target.request("POST", "/v1/gardens", body, key="agent", **headers, **extra)
    answer = target.exchange(sent, end=True)
    assert answer is None or 400 <= answer.status < 500
    assert target.stored() == before
    assert service.output().count("request_failed") == failures


# Paths, queries and headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/gardens/%00",
        "/v1/%00",
        "/%00",
        "/v1/gardens/{garden}%00",
        "/v1/gardens/{garden}/members/robin%00",
        "/v1/gardens/%FF",
        "/v1/gardens/{garden}/members/%FF%FE",
        "/v1/gardens/{garden}/members/%C0%80",
        "/v1/gardens/{garden}/members/%ED%A0%80",
        "/v1/gardens/{garden}/members/%E2%82",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_that_is_no_text_is_refused(target: Target, method: str, path: str) -> None:
    error = target.refuse(method, path, b'{"role": "admin"}')
    assert (error["status"], error["code"]) == (400, "invalid_text")


@each_list
@pytest.mark.parametrize("value", ["%00", "a%00b", "%FF", "%C0%80", "%ED%A0%80", "%E2%82"])
@pytest.mark.parametrize("name", ["cursor", "limit", "kind", "tenant_id", "nobody-asked"])
def test_a_query_that_is_no_text_is_refused(target: Target, path: str, name: str, value: str) -> None:
    error = target.refuse("GET", f"{path}?{name}={value}")
    assert (error["status"], error["code"]) == (400, "invalid_text")


@each_list
@pytest.mark.parametrize(
    "value", ["0", "-1", "201", "abc", "", "1.5", "1e3", "0x10", "true", "null", "NaN", "%D9%A3", "%205", "9" * 500]
)
def test_a_limit_outside_its_bounds_is_refused(target: Target, path: str, value: str) -> None:
    error = target.refuse("GET", f"{path}?limit={value}")
    assert (error["status"], error["code"]) == (400, "invalid_request")
    assert error["message"].startswith("limit: ")


@each_list
@pytest.mark.parametrize("value", ["1", "200"])
def test_a_limit_at_its_bounds_is_taken(target: Target, path: str, value: str) -> None:
    assert target.send("GET", f"{path}?limit={value}").status == 200


@pytest.mark.parametrize("query", ["status=lost", "status=", "status=PENDING", "kind=" + "x" * 64])
def test_an_invalid_filter_is_refused(target: Target, query: str) -> None:
    assert target.refuse("GET", f"/v1/jobs?{query}")["status"] == 400


@pytest.mark.parametrize("value", ["", "ACME", "acme%0A", "a" * 64, "%D0%B0cme", "acme%20"])
@pytest.mark.parametrize("path", ["/v1/admin/keys", "/v1/admin/projects"])
def test_a_tenant_that_cannot_be_one_is_refused(target: Target, path: str, value: str) -> None:
    for key in ("admin", "platform"):
        assert target.refuse("GET", f"{path}?tenant_id={value}", key=key)["status"] == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/gardens/{}"),
        ("PATCH", "/v1/gardens/{}"),
        ("GET", "/v1/gardens/{}/members"),
        ("PUT", "/v1/gardens/{}/members/robin"),
        ("DELETE", "/v1/gardens/{}/members/robin"),
        ("GET", "/v1/jobs/{}"),
        ("POST", "/v1/jobs/{}/cancel"),
        ("POST", "/v1/jobs/{}/retry"),
        ("DELETE", "/v1/admin/keys/{}"),
        ("POST", "/v1/admin/keys/{}/rotate"),
    ],
)
@pytest.mark.parametrize(
    "value",
    [
        "1",
        "nope",
        "01890a5d-ac96-774b-bcce-b302099a805",
        "01890a5d-ac96-774b-bcce-b302099a80577",
        "01890a5d-ac96-774b-bcce-b302099a805g",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "%7B01890a5d-ac96-774b-bcce-b302099a8057%7D",
        "01890a5d-ac96-774b-bcce-b302099a8057%0A",
        "'%20OR%20'1'='1",
        "..%2f..%2fadmin",
        "a" * 5000,
    ],
)
def test_an_id_that_leads_nowhere_is_not_found(target: Target, method: str, path: str, value: str) -> None:
    body = b'{"role": "admin"}' if method == "PUT" else b'{"name": "n"}' if method == "PATCH" else b""
    assert target.refuse(method, path.replace("{}", value).encode(), body)["status"] in {400, 404}


@pytest.mark.parametrize("write", [write for write in WRITES if write.method == "POST"], ids=str)
@pytest.mark.parametrize(
    "value",
    [b"", b"   ", b"a" * 256, b"a" * 60_000, b"a\tb", b"\x80", b"\xc3\xa9", b"\xff\xfe", b"\xc2\xa0"],
    ids=["empty", "blank", "256", "60000", "tab", "80", "utf-8", "no utf-8", "no-break space"],
)
def test_an_invalid_idempotency_key_is_refused(target: Target, write: Write, value: bytes) -> None:
    error = target.refuse(write.method, write.path, as_json(write.body), key=write.key, idempotency_key=value)
    assert (error["status"], error["code"]) == (400, "invalid_idempotency_key")


@pytest.mark.parametrize(
    "value", [b"DEFAULT", b"a b", b"default,other", b"-x", b"a" * 64, b"a" * 60_000, b"\xd0\xb0", b"\xff", b"../other"]
)
def test_a_project_that_cannot_be_one_is_refused(target: Target, value: bytes) -> None:
    error = target.refuse("POST", "/v1/gardens", b'{"slug": "nowhere"}', x_project_id=value)
    assert (error["status"], error["code"]) == (400, "invalid_project")


@pytest.mark.parametrize("length", [1_000, 60_000])
def test_a_very_long_path_leads_nowhere(target: Target, length: int) -> None:
    assert target.refuse("GET", "/v1/" + "a" * length)["status"] == 404
    assert target.refuse("GET", "/v1" + "/a" * (length // 2))["status"] == 404


def test_a_very_long_header_does_no_harm(target: Target) -> None:
    assert target.send("GET", "/v1/whoami", x_nobody_asked=b"a" * 100_000).status == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /v1/\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/whoami?\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /v1/\0 HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET v1/whoami HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-long: " + b"a" * 1_000_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"".join(b"x-%d: a\r\n" % number for number in range(500)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx-nul: a\0b\r\n\r\n",
        b"POST /v1/gardens HTTP/1.1\r\nhost: x\r\ncontent-length: abc\r\n\r\n",
        b"POST /v1/gardens HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/gardens HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"\0" * 1000 + b"\r\n\r\n",
    ],
    ids=range(15),
)
def test_what_is_no_http_is_refused_before_it_reaches_us(target: Target, sent: bytes) -> None:
    # These never get as far as the application, so there is no envelope and no request id.
    before = target.stored()
    answer = target.exchange(sent, end=True)
    assert answer is None or 400 <= answer.status < 500
    assert target.stored() == before
    assert target.send("GET", "/health", key=None).status == 200


# Methods and routes


KNOWN = {
    "/v1/whoami": {"GET"},
    "/v1/admin/tenants": {"GET", "POST"},
    "/v1/admin/projects": {"GET", "POST"},
    "/v1/admin/keys": {"GET", "POST"},
    "/v1/admin/keys/{spare}": {"DELETE"},
    "/v1/admin/keys/{spare}/rotate": {"POST"},
    "/v1/gardens": {"GET", "POST"},
    "/v1/gardens/{garden}": {"GET", "PATCH", "DELETE"},
    "/v1/gardens/{garden}/members": {"GET"},
    "/v1/gardens/{garden}/members/robin": {"PUT", "DELETE"},
    "/v1/jobs": {"GET"},
    "/v1/jobs/{job}": {"GET"},
    "/v1/jobs/{job}/cancel": {"POST"},
    "/v1/jobs/{job}/retry": {"POST"},
    "/health": {"GET"},
    "/ready": {"GET"},
    "/metrics": {"GET"},
}


@pytest.mark.parametrize("path", KNOWN)
def test_a_method_a_route_does_not_answer_is_refused(target: Target, path: str) -> None:
    methods = {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "QUERY", "BREW", "get"}
    for method in sorted(methods - KNOWN[path]):
        error = target.refuse(method, path, b"{}")
        assert (error["status"], error["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("path", KNOWN)
@pytest.mark.parametrize("method", ["OPTIONS", "HEAD"])
def test_asking_about_a_route_never_breaks_it(target: Target, method: str, path: str) -> None:
    before = target.stored()
    for key in ("admin", None):
        assert target.send(method, path, key=key).status in {200, 204, 401, 405}
    assert target.stored() == before


@pytest.mark.parametrize(
    "path",
    ["/v1", "/v2/whoami", "/v1/nope", "/V1/whoami", "/v1/gardens/x/y/z", "/v1/../v1/whoami", "/index.php", "*"],
)
@pytest.mark.parametrize("key", ["admin", None])
def test_an_unknown_route_is_not_found(target: Target, path: str, key: str | None) -> None:
    for method in ("GET", "POST", "DELETE", "BREW"):
        error = target.refuse(method, path, b"{}", key=key)
        assert (error["status"], error["code"]) == (404, "not_found")


# Keys


def broken_keys(key: str) -> dict[str, bytes]:
    """Ways to get an Authorization header wrong."""
    head, _, secret = key.rpartition("_")
    other = ("A" if secret[0] != "A" else "B") + secret[1:]
    return {
        "empty": b"",
        "no scheme": key.encode(),
        "basic": b"Basic " + key.encode(),
        "token": b"Token " + key.encode(),
        "only the scheme": b"Bearer",
        "the scheme and spaces": b"Bearer    ",
        "garbage": b"Bearer garbage",
        "no ascii": "Bearer schlüssel".encode(),
        "no text": b"Bearer \xff\xfe\x80",
        "very long": b"Bearer " + b"a" * 60_000,
        "unknown id": f"Bearer pk_{uuid4().hex}_{secret}".encode(),
        "platform's id": f"Bearer pk_{UUID(int=0).hex}_{secret}".encode(),
        "right id, wrong secret": f"Bearer {head}_{other}".encode(),
        "right id, no secret": f"Bearer {head}_".encode(),
        "cut short": f"Bearer {key[:-1]}".encode(),
        "one too many": f"Bearer {key}A".encode(),
        "in capitals": f"Bearer {key.upper()}".encode(),
        "only the secret": f"Bearer {secret}".encode(),
        "two keys": f"Bearer {key} {key}".encode(),
        "quoted": f'Bearer "{key}"'.encode(),
        "sql": b"Bearer pk_' OR '1'='1",
    }


@pytest.mark.parametrize("wrong", broken_keys("pk_x_y"))
def test_without_a_working_key_nothing_is_answered(target: Target, wrong: str) -> None:
    given = broken_keys(target.keys["admin"])[wrong]
    for method, path, body in (
        ("GET", "/v1/whoami", b""),
        ("GET", "/v1/admin/tenants", b""),
        ("GET", "/v1/jobs/{job}", b""),
        ("POST", "/v1/gardens", b'{"slug": "sneaky"}'),
        ("POST", "/v1/admin/keys", b'{"agent_id": "sneaky"}'),
        ("DELETE", "/v1/admin/keys/{spare}", b""),
    ):
        error = target.refuse(method, path, body, key=None, authorization=given)
        assert error["status"] == 401
        assert error["code"] in {"key_missing", "key_unknown"}


@pytest.mark.parametrize("path", [path for path in KNOWN if path.startswith("/v1")])
def test_without_any_key_nothing_is_answered(target: Target, path: str) -> None:
    for method in KNOWN[path]:
        error = target.refuse(method, path, b"{}", key=None)
        assert (error["status"], error["code"]) == (401, "key_missing")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/gardens/{garden}", b""),
        ("PATCH", "/v1/gardens/{garden}", b'{"name": "taken over"}'),
        ("GET", "/v1/gardens/{garden}/members", b""),
        ("PUT", "/v1/gardens/{garden}/members/admin", b'{"role": "admin"}'),
        ("DELETE", "/v1/gardens/{garden}/members/robin", b""),
        ("GET", "/v1/jobs/{job}", b""),
        ("POST", "/v1/jobs/{job}/cancel", b""),
        ("POST", "/v1/jobs/{job}/retry", b""),
        ("DELETE", "/v1/admin/keys/{spare}", b""),
        ("POST", "/v1/admin/keys/{spare}/rotate", b""),
        ("GET", "/v1/admin/keys?tenant_id=acme", b""),
        ("POST", "/v1/admin/keys", b'{"agent_id": "sneaky", "tenant_id": "acme"}'),
        ("POST", "/v1/admin/projects", b'{"project_id": "sneaky", "tenant_id": "acme"}'),
    ],
)
def test_a_key_of_another_tenant_finds_nothing(target: Target, method: str, path: str, body: bytes) -> None:
    assert target.refuse(method, path, body, key="rival_admin")["status"] == 404


# Cursors


class PastSigner(CursorSigner):
    """Signs as the service does, a long time ago."""

    def sign(self, position: list[Any], *, binding: str, now: float | None = None) -> str:
        return super().sign(position, binding=binding, now=1_000_000_000)


def first_cursor(target: Target, path: str, key: str = "admin", **headers: bytes) -> str:
    """The cursor to the second page of one."""
    answer = target.send("GET", f"{path}{'&' if '?' in path else '?'}limit=1", key=key, **headers)
    assert answer.status == 200
    cursor = json.loads(answer.body)["next_cursor"]
    assert cursor is not None
    return cursor


def signed_by(signer: CursorSigner, target: Target) -> str:
    """A cursor into the administrator's list of keys."""
    who = json.loads(target.send("GET", "/v1/whoami").body)
    caller = Principal(tenant_id="acme", project_id="default", key_id=who["key_id"], kind="admin")
    rows = [{"key_id": who["key_id"]}, {"key_id": who["key_id"]}]
    _, cursor = Page(signer, caller, "keys", limit=1, cursor=None).cut(rows, key=lambda row: [row["key_id"]])
    assert cursor is not None
    return cursor


def secret_of(target: Target) -> bytes:
    """What the service signs cursors with."""
    row = target.database.execute("SELECT secret FROM service_secrets WHERE name = 'cursor'").fetchone()
    assert row is not None
    return bytes(row[0])


def test_an_expired_cursor_is_refused(target: Target) -> None:
    fresh = signed_by(CursorSigner(secret_of(target)), target)
    assert target.send("GET", f"/v1/admin/keys?cursor={fresh}").status == 200
    expired = signed_by(PastSigner(secret_of(target)), target)
    error = target.refuse("GET", f"/v1/admin/keys?cursor={expired}")
    assert (error["status"], error["code"]) == (400, "cursor_expired")


def test_a_cursor_signed_with_another_secret_is_refused(target: Target) -> None:
    for secret in (b"", b"another secret", secret_of(target)[::-1]):
        error = target.refuse("GET", f"/v1/admin/keys?cursor={signed_by(CursorSigner(secret), target)}")
        assert (error["status"], error["code"]) == (400, "cursor_invalid")


def test_a_cursor_altered_anywhere_is_refused(target: Target) -> None:
    cursor = first_cursor(target, "/v1/admin/keys")
    for place in range(0, len(cursor) - 1, 3):
        letter = "A" if cursor[place] != "A" else "B"
        forged = cursor[:place] + letter + cursor[place + 1 :]
        error = target.refuse("GET", f"/v1/admin/keys?cursor={forged}")
        assert (error["status"], error["code"]) == (400, "cursor_invalid")


def test_a_cursor_cut_short_or_drawn_out_is_refused(target: Target) -> None:
    cursor = first_cursor(target, "/v1/admin/keys")
    for damaged in (*[cursor[:end] for end in range(0, len(cursor), 5)], cursor + "A", cursor + "AAAA", "A" + cursor):
        error = target.refuse("GET", f"/v1/admin/keys?cursor={damaged}")
        assert (error["status"], error["code"]) == (400, "cursor_invalid")


@each_list
@pytest.mark.parametrize(
    "text",
    ["abc", "A", "====", "%20", "%0A", "..%2F..", "%C3%A9", "0", "null", "e30", "A" * 2048, "A" * 2049, "A" * 50_000],
)
def test_a_text_that_is_no_cursor_is_refused(target: Target, path: str, text: str) -> None:
    error = target.refuse("GET", f"{path}?cursor={text}")
    assert error["status"] == 400
    assert error["code"] in {"cursor_invalid", "invalid_request"}


@pytest.mark.parametrize("path", ["/v1/admin/projects", "/v1/gardens", "/v1/gardens/{garden}/members", "/v1/jobs"])
def test_a_cursor_of_another_list_is_refused(target: Target, path: str) -> None:
    cursor = first_cursor(target, "/v1/admin/keys")
    error = target.refuse("GET", f"{path}?cursor={cursor}")
    assert (error["status"], error["code"]) == (400, "cursor_invalid")


def test_a_cursor_of_another_caller_is_refused(target: Target) -> None:
    cursor = first_cursor(target, "/v1/admin/keys")
    for key in ("second_admin", "rival_admin"):
        error = target.refuse("GET", f"/v1/admin/keys?cursor={cursor}", key=key)
        assert (error["status"], error["code"]) == (400, "cursor_invalid")
    garden = first_cursor(target, "/v1/gardens", key="agent")
    assert target.refuse("GET", f"/v1/gardens?cursor={garden}", key="admin")["code"] == "cursor_invalid"


def test_a_cursor_of_another_project_or_filter_is_refused(target: Target) -> None:
    gardens = first_cursor(target, "/v1/gardens")
    elsewhere = target.refuse("GET", f"/v1/gardens?cursor={gardens}", x_project_id=b"other")
    assert elsewhere["code"] == "cursor_invalid"
    acme = first_cursor(target, "/v1/admin/keys?tenant_id=acme", key="platform")
    assert target.send("GET", f"/v1/admin/keys?tenant_id=acme&cursor={acme}", key="platform").status == 200
    rival = target.refuse("GET", f"/v1/admin/keys?tenant_id=rival&cursor={acme}", key="platform")
    assert rival["code"] == "cursor_invalid"


# Whatever comes to mind

EDGES: list[Any] = [
    "", "null", "abc\n", "\0", "\ud800", "٣", "ａ", "x" * 3000, "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+23:59", "2999-02-30T00:00:00Z", "-1", "1e999", "253402300800", "acme", "other", "robin",
    "admin", "notes:read", "public", 0, -1, 2**31, 2**63, 2**64, 10**400, 253402300800, 1e300, -0.0, 1.5, True, None,
    [], {}, [[]], {"read": 0}, {"": None},
]  # fmt: skip
LEAVES = st.one_of(
    st.sampled_from(EDGES),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(), max_size=20),
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inside: st.one_of(
        st.lists(inside, max_size=4), st.dictionaries(st.text(st.characters(), max_size=8), inside, max_size=4)
    ),
    max_leaves=8,
)
CALLERS = [
    pytest.param(write, key, id=f"{write} by {key}")
    for write in WRITES
    for key in ([write.key, "admin"] if write.key == "platform" else ["admin", "agent"])
]
BODILESS = [
    Write("POST", "/v1/jobs/{job}/cancel", "agent", {}),
    Write("POST", "/v1/jobs/{job}/retry", "agent", {}),
]
tireless = settings(
    max_examples=sized(10, 30),
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=ALL_HEALTH_CHECKS,
)


@dataclass(frozen=True)
class Playground:
    """A tenant nobody else looks at, for what random bodies may do to it."""

    url: str
    clients: dict[str, httpx.Client]
    places: dict[str, str]

    def send(self, write: Write, key: str, body: bytes, *, repeatable: bool = False) -> httpx.Response:
        """Sends a body with the given key."""
        headers = {"Idempotency-Key": secrets.token_hex(8)} if repeatable else {}
        path = write.path.format_map(self.places)
        return self.clients[key].request(write.method, path, content=body, headers=headers)


@pytest.fixture(scope="module")
def playground(tenancy: Tenancy, service: RunningService) -> Iterator[Playground]:
    """Keys without limits, a garden and a spare key in a tenant of its own."""
    tenancy.tenant("playground", "default", "other")
    keys = {
        "platform": PLATFORM_KEY,
        "admin": tenancy.key("playground", kind="admin", rate_limits=UNLIMITED),
        "agent": tenancy.key("playground", rate_limits=UNLIMITED),
    }
    spare = tenancy.issue("playground", agent_id="spare")["key_id"]
    clients: dict[str, httpx.Client] = {}
    for name, key in keys.items():
        headers = {"Authorization": f"Bearer {key}", "X-Project-Id": "default", "Content-Type": "application/json"}
        clients[name] = httpx.Client(base_url=service.url, timeout=30, headers=headers)
    garden = clients["agent"].post("/v1/gardens", json={"slug": "playground"}).json()["garden"]["garden_id"]
    yield Playground(service.url, clients, {"garden": garden, "spare": spare, "job": str(uuid4())})
    for client in clients.values():
        client.close()


def survived(answer: httpx.Response) -> None:
    """Checks that an answer is a success or an error in the envelope, and no 5xx."""
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "request_id", "details"}
        assert error["request_id"] == answer.headers["x-request-id"]
        assert answer.status_code in {400, 403, 404, 409}


@pytest.mark.parametrize("write", WRITES, ids=str)
def test_no_odd_value_in_any_field_breaks_the_service(playground: Playground, write: Write) -> None:
    base = {field: value for field, value in write.body.items() if field != "tenant_id" or write.key == "platform"}
    for field in base:
        for value in EDGES:
            survived(playground.send(write, write.key, as_json({**base, field: value})))


@pytest.mark.parametrize(("write", "key"), CALLERS)
@tireless
@given(document=DOCUMENTS, repeatable=st.booleans())
def test_no_document_breaks_the_service(
    playground: Playground, write: Write, key: str, document: Any, repeatable: bool
) -> None:
    survived(playground.send(write, key, as_json(document), repeatable=repeatable))


@pytest.mark.parametrize(("write", "key"), CALLERS)
@tireless
@given(data=st.data(), repeatable=st.booleans())
def test_no_change_to_a_valid_body_breaks_the_service(
    playground: Playground, write: Write, key: str, data: st.DataObject, repeatable: bool
) -> None:
    fields = st.sampled_from([*write.body, "name", "surprise"])
    mutation = data.draw(st.dictionaries(fields, st.one_of(st.just("drop"), LEAVES, DOCUMENTS), max_size=3))
    base = {field: value for field, value in write.body.items() if field != "tenant_id" or key == "platform"}
    body = {field: value for field, value in {**base, **mutation}.items() if value != "drop"}
    survived(playground.send(write, key, as_json(body), repeatable=repeatable))


@pytest.mark.parametrize("write", [*WRITES, *BODILESS], ids=str)
@tireless
@given(body=st.binary(max_size=60), repeatable=st.booleans())
def test_no_bytes_break_the_service(playground: Playground, write: Write, body: bytes, repeatable: bool) -> None:
    survived(playground.send(write, write.key, body, repeatable=repeatable))


@pytest.mark.parametrize(
    "path", ["/v1/admin/keys", "/v1/admin/projects", "/v1/gardens", "/v1/gardens/{garden}/members"]
)
def test_after_all_that_every_list_can_still_be_read(playground: Playground, path: str) -> None:
    for query in ("", "?limit=200"):
        answer = playground.clients["admin"].get(path.format_map(playground.places) + query)
        assert answer.status_code == 200, answer.text
