"""Query parameters: those that a route does not declare are refused, and so is a single value that is given twice."""

from typing import Any

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from app.errors import BadRequest

OPTION = "query_parameters"
MAX_SHOWN_LENGTH = 100


class DeclaredParameters(msgspec.Struct, frozen=True):
    """The query parameters of a handler and its dependencies."""

    names: frozenset[str]
    repeatable: frozenset[str]


def declare_parameters(route: HTTPRoute) -> None:
    """Record with every handler of a route which query parameters it takes."""
    for handler, model in route.route_handler_map.values():
        # A browser asks for the methods of an address with the query of the request that follows.
        if handler.http_methods == {"OPTIONS"}:
            continue
        handler.opt[OPTION] = DeclaredParameters(
            names=frozenset(parameter.field_alias for parameter in model.expected_query_params),
            repeatable=frozenset(model.sequence_query_parameter_names),
        )


async def check_parameters(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise BadRequest for a query parameter that the handler does not take, or that is given twice."""
    if not connection.scope["query_string"]:
        return
    declared: DeclaredParameters | None = handler.opt.get(OPTION)
    if declared is None:
        return
    seen: set[str] = set()
    for name, _ in connection.query_params.multi_items():
        if name not in declared.names:
            raise _unknown(name, declared)
        if name in seen and name not in declared.repeatable:
            raise _refused(name, "given more than once; give it once", "repeated_parameter", declared)
        seen.add(name)


def _unknown(name: str, declared: DeclaredParameters) -> BadRequest:
    allowed = f"this path takes {', '.join(sorted(declared.names))}" if declared.names else "this path takes none"
    return _refused(name, f"unknown query parameter; {allowed}", "unknown_parameter", declared)


def _refused(name: str, problem: str, code: str, declared: DeclaredParameters) -> BadRequest:
    shown = name[:MAX_SHOWN_LENGTH] or "(empty name)"
    return BadRequest(
        f"{shown}: {problem}.",
        code=code,
        details={"fields": [{"field": shown, "message": problem, "in": "query"}], "allowed": sorted(declared.names)},
    )
