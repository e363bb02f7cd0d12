"""Logs: one JSON line per event on standard error, without request bodies or secrets."""

import logging
import sys
from contextlib import suppress
from typing import Any

import structlog


def configure_logs(level: str) -> None:
    """Configure structlog, and route warnings of the standard library's logging through it."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=_Lines,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)


class _Lines:
    """Writes each event as one line and ignores a closed terminal or a full disk."""

    def __init__(self, *_: Any) -> None:
        self._stream = sys.stderr

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(f"{message}\n")
            self._stream.flush()

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


class _ToStructlog(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        logger: Any = structlog.get_logger()
        logger.log(record.levelno, record.getMessage().replace("\n", " "), logger=record.name)


def describe_failure(problem: BaseException) -> dict[str, Any]:
    """Return what may be logged of an unexpected error: its type and location, never the values it carries."""
    frames: list[str] = []
    trace = problem.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_qualname}")
        trace = trace.tb_next
    described: dict[str, Any] = {"error": type(problem).__qualname__, "where": frames[-12:]}
    cause = getattr(problem, "orig", None) or problem
    # The message of a database error may quote a row; its state and constraint do not.
    if (state := getattr(cause, "sqlstate", None)) is not None:
        described["sqlstate"] = state
        described["constraint"] = getattr(getattr(cause, "diag", None), "constraint_name", None)
    if problem.__cause__ is not None and problem.__cause__ is not cause:
        described["cause"] = type(problem.__cause__).__qualname__
    return described
