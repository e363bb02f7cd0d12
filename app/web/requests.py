"""Requests as handlers receive them: validated JSON, the caller, idempotency and common parameters."""

import asyncio
import re
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.enums import MediaType
from litestar.handlers import BaseRouteHandler
from litestar.params import HeaderParameter, QueryParameter, SkipValidation

from app.access import Principal
from app.admission import AdmissionQueue, hold
from app.config import Settings
from app.confirmations import MAX_TOKEN_LENGTH
from app.db.database import Database, Row
from app.db.scope import EVERY_USER, ScopedFunction
from app.errors import BadRequest, BodyTimeout, TooLarge
from app.inputs import invalid_body, malformed_json, read_camel_case
from app.paging import MAX_CURSOR_LENGTH, CursorSigner
from app.web.auth import Access, Authenticator, Credentials, check_access, parse_credentials
from app.web.idempotency import EncodedResponse, IdempotentRequest, hash_request
from app.web.rate_limits import RateLimiter

WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# A batch of this many items counts as one request more.
ITEMS_PER_COST = 100
JSON_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)


class ApiRequest(Request[Any, Any, Any]):
    """A request whose JSON contains nothing that PostgreSQL cannot store."""

    async def json(self) -> Any:
        """Return the body as the handler's type, strictly: the framework would accept "5" for 5 and "null" for null."""
        body = await self.body()
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise malformed_json(body, problem) from problem
        kind = self.route_handler.parsed_fn_signature.parameters["data"].annotation
        if b"\\u0000" in body:
            _refuse_nul(value, "body")
        renamed = None
        if getattr(kind, "older_style", None) == "camel":
            value, renamed = read_camel_case(value, kind)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as problem:
            raise invalid_body(problem, kind, renamed=renamed) from problem


def _refuse_nul(value: Any, where: str) -> None:
    if isinstance(value, str) and "\0" in value:
        raise BadRequest(f"{where}: NUL characters are not allowed.", code="invalid_text")
    if isinstance(value, dict):
        members = cast(dict[str, Any], value)
        for key, item in members.items():
            _refuse_nul(key, where)
            _refuse_nul(item, f"{where}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Any], value)):
            _refuse_nul(item, f"{where}[{index}]")


def check_values(body: bytes, limit: int) -> None:
    """Raise TooLarge for JSON with more values than the limit, without decoding it."""
    # Every value but the first follows one of these characters; texts may contain them, too.
    if len(body) <= limit or _count_separators(body) < limit:
        return
    if _count_separators(JSON_TEXT.sub(b"", body)) >= limit:
        raise TooLarge(
            f"The body has more than {limit} values (MAX_JSON_VALUES); send less at once.", code="too_many_values"
        )


def _count_separators(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


class Admission:
    """Lets a request run when it is its turn, once its body has arrived."""

    def __init__(self, settings: Settings) -> None:
        self._body_seconds = settings.body_seconds
        self._max_values = settings.max_json_values
        self._queue = AdmissionQueue(
            capacity=settings.request_concurrency or settings.pool_size,
            tenant_share=settings.tenant_concurrency,
            seconds=settings.request_wait_seconds,
            max_waiting=settings.tenant_waiting,
        )

    async def enter(self, request: ApiRequest, access: Access, *, tenant: str, key: str) -> None:
        """Read the body, which must not take a place while it arrives, then wait for the request's turn."""
        body = await self._read_body(request) if request.method in WITH_BODY else b""
        check_values(body, self._max_values)
        ticket = await self._queue.enter(tenant, key, cost=access.cost + body.count(b"{") // ITEMS_PER_COST)
        request.scope["state"]["ticket"] = ticket
        hold(ticket)

    async def _read_body(self, request: ApiRequest) -> bytes:
        try:
            async with asyncio.timeout(self._body_seconds):
                return await request.body()
        except TimeoutError as problem:
            raise BodyTimeout(
                f"The body did not arrive within {self._body_seconds:g} s; send less at once, or faster."
            ) from problem


def guard(
    authenticator: Authenticator,
    limiter: RateLimiter,
    admission: Admission,
    on_use: Callable[[Principal], None],
) -> Callable[..., Any]:
    """Return the guard of every route under /v1, which checks key, access and rate limit, and waits for a turn."""

    async def check(connection: ApiRequest, handler: BaseRouteHandler) -> None:
        access: Access | None = handler.opt.get("access")
        if access is None:
            # Only the framework's OPTIONS handlers have none, which list methods and nothing else.
            return
        state = connection.scope["state"]
        credentials = parse_credentials(state.get("authorization"), state.get("project"), state.get("user"))
        state["credentials"] = credentials
        state["on_use"] = on_use
        if access.hot:
            await admission.enter(
                connection, access, tenant=authenticator.tenant_of(credentials), key=credentials.key_id
            )
            return
        who = await authenticator.authenticate(credentials)
        await admit(connection, access, who, limiter)
        await admission.enter(connection, access, tenant=who.tenant_id, key=who.key_id)

    return check


async def admit(
    connection: ASGIConnection[Any, Any, Any, Any], access: Access, who: Principal, limiter: RateLimiter
) -> None:
    """Check access and rate limit of an authenticated caller, or raise Forbidden or RateLimited."""
    connection.scope["state"]["who"] = who
    check_access(access, who)
    await limiter.take(who, access.work)
    if access.also_counts_as is not None:
        await limiter.take(who, access.also_counts_as)
    connection.scope["state"]["on_use"](who)


# Declared so that the reference shows them; the edge reads them by itself.
ProjectHeader = Annotated[
    str | None,
    HeaderParameter(name="X-Project-Id", description="The project; required for a key that spans projects."),
]
UserHeader = Annotated[
    str | None,
    HeaderParameter(
        name="X-User-Id",
        description="The end user whose memory is meant, with what is common to all users; without one, everything.",
    ),
]
IdempotencyHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="1 to 255 printable ASCII characters; repeating it returns the first response for 24 hours.",
    ),
]


class HotPath(msgspec.Struct, frozen=True):
    """What a handler needs whose own call authenticates; read from the request, since injection costs as much."""

    authenticator: Authenticator
    limiter: RateLimiter
    credentials: Credentials

    async def call(self, function: ScopedFunction, *arguments: Any) -> tuple[Principal, list[Row]]:
        """Authenticate the request and call a function in the caller's scope, in one round trip."""
        return await self.authenticator.call(function, self.credentials, *arguments)


def hot_path(request: ApiRequest) -> HotPath:
    """Return the hot path of a request."""
    state = request.app.state
    return HotPath(state["authenticator"], state["limiter"], request.scope["state"]["credentials"])


def provide_who(request: ApiRequest, x_project_id: ProjectHeader = None, x_user_id: UserHeader = None) -> Principal:
    """Return the caller whom the guard authenticated."""
    return request.scope["state"]["who"]


async def provide_idempotent_request(
    request: ApiRequest, idempotency_key: IdempotencyHeader = None
) -> IdempotentRequest:
    """Return the idempotency of this request."""
    key = request.scope["state"].get("idempotency_key")
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise BadRequest("Idempotency-Key: 1 to 255 printable ASCII characters.", code="invalid_idempotency_key")
    state = request.scope["state"]
    credentials: Credentials = state["credentials"]
    return IdempotentRequest(
        who=state["who"],
        method=request.method,
        path=_idempotency_path(request.scope["path"], state["who"]),
        key=key,
        request_hash=hash_request(request.scope["query_string"], await request.body()) if key else b"",
        secret=credentials.secret,
    )


def _idempotency_path(path: str, who: Principal) -> str:
    """Return the path with project and user: a key may use the same Idempotency-Key in each of them."""
    user = "" if who.user_id == EVERY_USER else f" user:{who.user_id}"
    return f"{path} {who.project_id or ''}".rstrip() + user


def respond(encoded: EncodedResponse) -> Response[Any]:
    """Return the response of a body that is already encoded."""
    headers = {"idempotency-replayed": "true"} if encoded.replayed else {}
    if encoded.secret:
        headers["cache-control"] = "no-store"
    return Response(encoded.body, status_code=encoded.status, headers=headers, media_type=MediaType.JSON)


# Dependencies of handlers.
Db = NamedDependency[SkipValidation[Database]]
Who = NamedDependency[SkipValidation[Principal]]
Idempotent = NamedDependency[SkipValidation[IdempotentRequest]]
ConfirmToken = Annotated[
    str | None,
    QueryParameter(
        max_length=MAX_TOKEN_LENGTH, description="What confirms the deletion of more than 25 notes; see 409."
    ),
]
Cursors = NamedDependency[SkipValidation[CursorSigner]]
# Names of entities under legal hold whose history not even administrators can read.
HoldDenied = NamedDependency[SkipValidation[frozenset[str]]]
AsOf = Annotated[
    str | None,
    QueryParameter(
        description="What was recorded at this time (needs scope history:as_of); not before the project's as_of_floor.",
    ),
]
Limit = Annotated[int, QueryParameter(ge=1, le=200, description="Maximum number of results.")]
IncludeTotal = Annotated[
    bool,
    QueryParameter(description="Also return `total`: how many there are on all pages, exact up to 10,000."),
]
Cursor = Annotated[
    str | None,
    QueryParameter(
        max_length=MAX_CURSOR_LENGTH,
        description="`next_cursor` of the previous page; valid for 300 seconds by default.",
    ),
]
