"""The request as handlers meet it: bounded JSON, the caller, and the idempotency of what they ask."""

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
from app.cursors import MAX_LENGTH, CursorSigner
from app.db.database import Database
from app.errors import BadRequest
from app.inputs import invalid_body
from app.web.auth import Access, Authenticator, Credentials, check_access, parse_credentials
from app.web.idempotency import EncodedResponse, IdempotentRequest, hash_request
from app.web.rate_limits import RateLimiter


class ApiRequest(Request[Any, Any, Any]):
    """A request whose JSON holds nothing PostgreSQL could not store."""

    async def json(self) -> Any:
        """The body as the handler's type, strictly: the framework itself would take "5" for 5 and "null" for null."""
        body = await self.body()
        try:
            value = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise BadRequest("The body is not valid JSON.", code="malformed_json") from problem
        kind = self.route_handler.parsed_fn_signature.parameters["data"].annotation
        if b"\\u0000" in body:
            _refuse_nul(value, "body")
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as problem:
            raise invalid_body(problem, kind) from problem


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


def guard(
    authenticator: Authenticator, limiter: RateLimiter, on_use: Callable[[Principal], None]
) -> Callable[..., Any]:
    """The guard of every route under /v1: key, access, rate, in this order."""

    async def check(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        access: Access | None = handler.opt.get("access")
        if access is None:
            # Only the framework's own OPTIONS handlers have none, which say what methods there are and nothing else.
            return
        state = connection.scope["state"]
        credentials = parse_credentials(state.get("authorization"), state.get("project"))
        state["credentials"] = credentials
        state["on_use"] = on_use
        if access.hot:
            return
        who = await authenticator.authenticate(credentials)
        await admit(connection, access, who, limiter)

    return check


async def admit(
    connection: ASGIConnection[Any, Any, Any, Any], access: Access, who: Principal, limiter: RateLimiter
) -> None:
    """Lets a known caller through, or says why not."""
    connection.scope["state"]["who"] = who
    check_access(access, who)
    await limiter.take(who, access.work)
    if access.besides is not None:
        await limiter.take(who, access.besides)
    connection.scope["state"]["on_use"](who)


# Named here so that the reference shows them; the edge reads them for itself.
ProjectHeader = Annotated[
    str | None,
    HeaderParameter(name="X-Project-Id", description="The project, for a key that spans several."),
]
IdempotencyHeader = Annotated[
    str | None,
    HeaderParameter(
        name="Idempotency-Key",
        description="1 to 255 printable ASCII characters; the same again gives the first answer for 24 hours.",
    ),
]


class HotPath(msgspec.Struct, frozen=True):
    """What a hot handler needs; taken from the request, since injecting it would cost as much as the query."""

    authenticator: Authenticator
    limiter: RateLimiter
    credentials: Credentials


def hot_path(request: ApiRequest) -> HotPath:
    """The means of a handler whose own call authenticates."""
    state = request.app.state
    return HotPath(state["authenticator"], state["limiter"], request.scope["state"]["credentials"])


def provide_who(request: ApiRequest, x_project_id: ProjectHeader = None) -> Principal:
    """The caller, as the guard found them; the header was read there."""
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
        # A key that spans projects may send the same key in each of them.
        path=f"{request.scope['path']} {state['who'].project_id or ''}".rstrip(),
        key=key,
        request_hash=hash_request(request.scope["query_string"], await request.body()) if key else b"",
        secret=credentials.secret,
    )


def respond(answer: EncodedResponse) -> Response[Any]:
    """Sends an answer that is already encoded."""
    headers = {"idempotency-replayed": "true"} if answer.replayed else {}
    return Response(answer.body, status_code=answer.status, headers=headers, media_type=MediaType.JSON)


# What handlers are given, by these names.
Db = NamedDependency[SkipValidation[Database]]
Who = NamedDependency[SkipValidation[Principal]]
Idempotent = NamedDependency[SkipValidation[IdempotentRequest]]
Cursors = NamedDependency[SkipValidation[CursorSigner]]
# Names of entities under legal hold whose past not even administrators read.
HoldDenied = NamedDependency[SkipValidation[frozenset[str]]]
AsOf = Annotated[
    str | None,
    QueryParameter(
        description="As it was known at this time (scope history:as_of); not before the project's floor.",
    ),
]
Limit = Annotated[int, QueryParameter(ge=1, le=200, description="How many at the most.")]
Cursor = Annotated[
    str | None,
    QueryParameter(max_length=MAX_LENGTH, description="`next_cursor` of the page before; good for 300 seconds."),
]
