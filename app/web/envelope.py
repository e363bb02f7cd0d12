"""The error envelope: one shape for application errors, framework errors and unexpected ones."""

from typing import Any, cast

import msgspec
import psycopg
import structlog
from litestar import Request, Response
from litestar.enums import MediaType
from litestar.exceptions import (
    HTTPException,
    InternalServerException,
    SerializationException,
    ValidationException,
)
from sqlalchemy.exc import DBAPIError

from app.errors import AppError, BadRequest, Forbidden, Unavailable
from app.inputs import name_choices
from app.telemetry.logs import describe_failure

log: structlog.stdlib.BoundLogger = structlog.get_logger()

FRAMEWORK_CODES = {
    400: ("invalid_request", "The request could not be read."),
    404: ("not_found", "There is no such path."),
    405: ("method_not_allowed", "This path does not support the method."),
    413: ("body_too_large", "The request body exceeds the limit of this service (MAX_BODY_BYTES)."),
    415: ("unsupported_media_type", "Send the body as JSON."),
}
# SQLSTATE classes of values that cannot be stored, which the caller has to fix.
DATA_STATES = ("22",)


class FrameworkError(AppError):
    """An error of the framework with one of our codes and messages."""

    def __init__(self, problem: HTTPException) -> None:
        code, message = FRAMEWORK_CODES[problem.status_code]
        super().__init__(message, code=code)
        self.status = problem.status_code
        self._headers = dict(problem.headers or {})

    @property
    def headers(self) -> dict[str, str]:
        return self._headers


# Query parameters by the names of handler arguments, where these have to differ.
PARAMETER_NAMES = {"visibility": "scope", "note_type": "type", "target": "object", "words": "query"}


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """An error: a stable code, a message, and details."""

    code: str
    message: str
    request_id: str
    details: dict[str, Any]


class ErrorEnvelope(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: ErrorBody


def encode_error(problem: AppError, request_id: str) -> bytes:
    """Return the body of an error response."""
    return msgspec.json.encode(
        ErrorEnvelope(
            ErrorBody(code=problem.code, message=problem.message, request_id=request_id, details=problem.details)
        )
    )


def as_app_error(problem: Exception, types: dict[str, Any] | None = None) -> AppError:
    """Return any exception as an AppError; `types` are those of the handler's parameters, by name."""
    if isinstance(problem, AppError):
        return problem
    if isinstance(problem, ValidationException):
        return _invalid_fields(problem, types or {})
    if isinstance(problem, SerializationException | RecursionError | UnicodeDecodeError):
        return BadRequest("The body is not valid JSON.", code="malformed_json")
    if isinstance(problem, HTTPException) and problem.status_code in FRAMEWORK_CODES:
        return FrameworkError(problem)
    if isinstance(problem, InternalServerException) and "disconnected" in problem.detail:
        return BadRequest("The body ended before it was complete.", code="body_incomplete")
    cause = problem.orig if isinstance(problem, DBAPIError) else problem
    if isinstance(cause, psycopg.DataError) and (cause.sqlstate or "").startswith(DATA_STATES):
        return BadRequest("A value in the request cannot be stored.", code="invalid_value")
    if isinstance(cause, psycopg.errors.InsufficientPrivilege):
        # A row-level policy refused what a use case should have refused; handle_error logs it as a bug.
        return Forbidden("This key cannot access the requested data.")
    if isinstance(cause, psycopg.errors.QueryCanceled):
        return Unavailable(
            "The query exceeded the time limit of the database; request less at once.", code="took_too_long"
        )
    if isinstance(cause, psycopg.errors.DiskFull):
        return Unavailable(
            "The database has no disk space left, so nothing was written; its operator has to free or add space.",
            code="storage_full",
        )
    if isinstance(cause, psycopg.errors.OutOfMemory):
        return Unavailable("The database ran out of memory; request less at once.", code="out_of_memory")
    if isinstance(cause, psycopg.OperationalError):
        return Unavailable("The database cannot be reached; try again shortly.")
    return AppError("Internal error. Report the request id to the operator of this service.")


def _invalid_fields(problem: ValidationException, types: dict[str, Any]) -> AppError:
    extra: Any = problem.extra
    fields: list[dict[str, str]] = []
    for item in cast(list[dict[str, Any]], extra) if isinstance(extra, list) else ():
        source = item.get("source", "body")
        place = str(getattr(source, "value", source))
        key = str(item.get("key", "body"))
        message = str(item.get("message", ""))
        if key in types:
            message = name_choices(message, types[key])
        fields.append({"field": PARAMETER_NAMES.get(key, key), "message": message, "in": place})
    if not fields:
        return BadRequest(problem.detail or "The request could not be read.")
    first = fields[0]
    if first["field"] == "data":
        return BadRequest("body: send a JSON object.")
    return BadRequest(f"{first['field']}: {first['message']}", details={"fields": fields})


def handle_error(request: Request[Any, Any, Any], problem: Exception) -> Response[bytes]:
    """Return the error response of any exception, and log those that are not the caller's."""
    handler = request.scope.get("route_handler")
    parameters = handler.parsed_fn_signature.parameters if isinstance(problem, ValidationException) and handler else {}
    error = as_app_error(problem, {name: field.annotation for name, field in parameters.items()})
    request_id = str(request.scope.get("state", {}).get("request_id", ""))
    if error.status >= 500 or isinstance(problem, DBAPIError):
        log.error("request_failed", code=error.code, **describe_failure(problem))
    return Response(
        encode_error(error, request_id),
        status_code=error.status,
        headers=error.headers,
        media_type=MediaType.JSON,
    )
