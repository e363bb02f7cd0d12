"""The outermost ASGI layer: request ids, rejection of invalid text, access log, metrics and spans."""

import re
import time
from typing import Any
from urllib.parse import unquote_to_bytes

import structlog
import uuid_utils

from app.admission import Ticket
from app.errors import AppError, BadRequest
from app.telemetry.metrics import REQUEST_SECONDS, REQUESTS
from app.telemetry.traces import span
from app.web.envelope import encode_error

log: structlog.stdlib.BoundLogger = structlog.get_logger()

REQUEST_ID_FORM = re.compile(rb"[A-Za-z0-9._:-]{1,64}\Z")
METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
WANTED_HEADERS = {
    b"authorization": "authorization",
    b"x-project-id": "project",
    b"idempotency-key": "idempotency_key",
    b"x-user-id": "user",
}
QUIET_ROUTES = frozenset({"/health", "/ready", "/metrics"})


class Edge:
    """Wraps the application so that every request gets an id, one log line, metrics and a span."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        request_id = _read_headers(scope["headers"], state)
        header = (b"x-request-id", request_id.encode())
        status = 0

        async def send_with_id(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                # Not held until the caller has read the response.
                _release(state)
                message["headers"] = [*message.get("headers", ()), header, (b"x-content-type-options", b"nosniff")]
            await send(message)

        structlog.contextvars.bind_contextvars(request_id=request_id)
        try:
            problem = _repeated_header(state) or _invalid_text(scope)
            if problem is not None:
                await _send_error(send_with_id, problem, request_id)
            else:
                with span("http.request", method=scope["method"]) as current:
                    await self.app(scope, receive, send_with_id)
                    if current is not None:
                        current.update_name(f"{scope['method']} {_route(scope)}")
                        current.set_attribute("http.response.status_code", status)
        finally:
            _release(state)
            self._account(scope, status, time.perf_counter() - started)
            structlog.contextvars.unbind_contextvars("request_id")

    @staticmethod
    def _account(scope: Any, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else "OTHER"
        route = _route(scope)
        REQUESTS.labels(method, route, str(status)).inc()
        REQUEST_SECONDS.labels(method, route).observe(seconds)
        if route in QUIET_ROUTES and status < 400:
            return
        who = scope["state"].get("who")
        log.info(
            "request",
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1000, 2),
            tenant=getattr(who, "tenant_id", None),
            key_id=getattr(who, "key_id", None),
        )


def _release(state: dict[str, Any]) -> None:
    ticket: Ticket | None = state.get("ticket")
    if ticket is not None:
        ticket.release()


def _route(scope: Any) -> str:
    # A raw path may contain ids; paths that match no template share one label.
    return scope.get("path_template") or "unmatched"


def _read_headers(headers: Any, state: dict[str, Any]) -> str:
    """Read the headers that every request needs in one pass, and return the request id."""
    request_id = None
    seen: set[bytes] = set()
    for name, value in headers:
        if name in WANTED_HEADERS:
            if name in seen:
                state["repeated_header"] = name.decode()
            seen.add(name)
            state[WANTED_HEADERS[name]] = value.decode("latin-1")
        elif name == b"x-request-id" and REQUEST_ID_FORM.match(value):
            request_id = value.decode()
    state["request_id"] = request_id or str(uuid_utils.uuid7())
    return state["request_id"]


def _repeated_header(state: dict[str, Any]) -> AppError | None:
    # A proxy and this service could each believe another one of the two.
    name = state.get("repeated_header")
    return name and BadRequest(f"{name.title()}: given more than once; send it once.", code="repeated_header")


def _invalid_text(scope: Any) -> AppError | None:
    for part, raw in (("path", scope.get("raw_path") or scope["path"].encode()), ("query", scope["query_string"])):
        decoded = unquote_to_bytes(raw)
        if b"\0" in decoded:
            return BadRequest(f"{part}: NUL bytes are not allowed.", code="invalid_text")
        try:
            decoded.decode()
        except UnicodeDecodeError:
            return BadRequest(f"{part}: not valid UTF-8.", code="invalid_text")
    return None


async def _send_error(send: Any, problem: AppError, request_id: str) -> None:
    body = encode_error(problem, request_id)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
