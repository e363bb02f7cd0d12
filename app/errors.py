"""The tree of errors that callers receive; each has a stable code and an HTTP status.

AppError
├── BadRequest                 400  the request is malformed; the message names the field
│   ├── CursorInvalid               forged, damaged, or made for another list
│   └── CursorExpired               older than its time to live
├── Unauthenticated            401  no key, or one that is unknown, revoked or expired
├── Forbidden                  403  the key is not allowed to do this
├── NotFound                   404  unknown, hidden, or of another tenant, without distinction
├── BodyTimeout                408  the body did not arrive in time
├── Conflict                   409  the state does not allow it
├── TooLarge                   413  the body is over the limit
├── Unprocessable              422  well formed, but fails its schema
├── RateLimited                429  a rate limit, the budget of a repair, or the share of a tenant is used up
├── Unavailable                503  the database cannot be reached or is not ready, or the service is busy
├── ReplayedError              4xx  the stored error response of an Idempotency-Key
└── StartupError               (no status) the process cannot start; the message says what to do
    └── ConfigError                 a setting in the environment is missing or wrong
"""

from typing import Any, ClassVar


class AppError(Exception):
    """An error that callers receive."""

    status: int = 500
    default_code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, code: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details = details or {}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the error response."""
        return {}


class BadRequest(AppError):
    status = 400
    default_code = "invalid_request"


class CursorInvalid(BadRequest):
    default_code = "cursor_invalid"

    def __init__(self) -> None:
        super().__init__("The cursor was not issued for this list; start again without it.")


class CursorExpired(BadRequest):
    default_code = "cursor_expired"

    def __init__(self) -> None:
        super().__init__("The cursor has expired; start the list again without it.")


class Unauthenticated(AppError):
    status = 401
    default_code = "unauthenticated"

    @property
    def headers(self) -> dict[str, str]:
        return {"www-authenticate": 'Bearer realm="palimpsest"'}


class Forbidden(AppError):
    status = 403
    default_code = "forbidden"


class NotFound(AppError):
    status = 404
    default_code = "not_found"


class BodyTimeout(AppError):
    status = 408
    default_code = "body_timeout"


class Conflict(AppError):
    status = 409
    default_code = "conflict"


class TooLarge(AppError):
    status = 413
    default_code = "body_too_large"


class Unprocessable(AppError):
    status = 422
    default_code = "unprocessable"


class RateLimited(AppError):
    status = 429
    default_code = "rate_limited"

    def __init__(
        self, message: str, *, retry_after: int, code: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message, code=code, details=details)
        self.retry_after = retry_after

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": str(self.retry_after)}


class Unavailable(AppError):
    status = 503
    default_code = "unavailable"

    @property
    def headers(self) -> dict[str, str]:
        return {"retry-after": "1"}


def write_contention() -> Unavailable:
    """Return the error of a write that could not be done because of others to the same rows."""
    return Unavailable("Too many writers at the same rows; try again shortly.", code="write_contention")


class ReplayedError(AppError):
    """The stored error response of an Idempotency-Key, returned again."""

    def __init__(self, status: int, code: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(message, code=code, details=details)
        self.status = status

    @property
    def headers(self) -> dict[str, str]:
        return {"idempotency-replayed": "true"}


class StartupError(AppError):
    """The process cannot start; the message says why and what to do."""

    default_code = "startup_refused"


class ConfigError(StartupError):
    default_code = "invalid_setting"
