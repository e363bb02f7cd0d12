"""The API reference: the OpenAPI document and one page that renders it, with nothing fetched from elsewhere."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, Router
from litestar.datastructures import ResponseHeader
from litestar.handlers import BaseRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag
from litestar.routes import BaseRoute
from litestar.types import ControllerRouterHandler

from app import __version__
from app.web.envelope import ErrorEnvelope

DESCRIPTION = """Long-term memory for agents and the products around them, on plain PostgreSQL.

Send your key as `Authorization: Bearer pk_...`; a key that spans projects also names one in `X-Project-Id`.
Errors are `{"error": {"code", "message", "request_id", "details"}}`. Lists answer `next_cursor`, good for 300 seconds.
`Idempotency-Key` on a POST that creates makes it safe to repeat for 24 hours."""

TAGS = [
    Tag(name="tenancy", description="Who the caller is."),
    Tag(name="administration", description="Tenants, projects and keys."),
    Tag(name="gardens", description="Shared beds of memory, with members."),
    Tag(name="notes", description="What was said, with the history of every change."),
    Tag(name="documents", description="Long texts, files and pages, read into notes in the background."),
    Tag(name="entities", description="Who and what facts are about: one entity for each name, whatever its spelling."),
    Tag(name="predicates", description="The vocabulary of facts: it grows by itself, and is decided upon later."),
    Tag(name="facts", description="What is believed, with its evidence, true from and to."),
    Tag(name="truth", description="Conflicts and how they end, decay, and how far sources are trusted."),
    Tag(name="forgetting", description="Tombstones, legal holds, erasure and its receipts; for administrators."),
    Tag(name="recall", description="What fits a query, in the order of how well; and what was once returned."),
    Tag(name="graph", description="Walking the graph of facts: who is near whom."),
    Tag(name="types", description="Which properties objects and relationships have, and what may be linked."),
    Tag(name="objects", description="What is curated: typed, versioned, never lost; and walking it."),
    Tag(name="relationships", description="Directed links between objects, with versions of their own."),
    Tag(name="pipeline", description="What models make of notes: settings, reviews, and what it costs."),
    Tag(name="jobs", description="Background work, followed to its end."),
    Tag(name="operations", description="How a project is, what should be repaired, and repairing it."),
    Tag(name="platform", description="Health, readiness, metrics."),
]


ERROR_RESPONSES = {
    status: ResponseSpec(data_container=ErrorEnvelope, description=text, generate_examples=False)
    for status, text in {
        400: "Malformed; the message names the field.",
        401: "No key, or one that is unknown, revoked or expired.",
        403: "The key may not do this.",
        404: "Unknown, hidden, or of another tenant: all alike.",
        409: "The state does not allow it, or an Idempotency-Key was used for something else.",
        413: "The body is over the limit.",
        429: "The key's budget for this kind of work, or a repair's, is used up; see Retry-After.",
        503: "The database cannot be reached; see Retry-After.",
    }.items()
}


def also(status: int, body: Any, text: str) -> dict[int, ResponseSpec]:
    """A second way in which an operation may succeed."""
    return {status: ResponseSpec(data_container=body, description=text, generate_examples=False)}


# The page is one file with everything in it: nothing else may be loaded, and only our own API be called.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


class ReferenceDocument(JsonRenderPlugin):
    """Serves the document; what the code says of its fields is looked up when somebody asks, not at every start."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        _describe_schemas(openapi_schema)
        return super().render(request, openapi_schema)


class ReferencePage(OpenAPIRenderPlugin):
    """Serves the one page."""

    def __init__(self) -> None:
        super().__init__(path="/")
        self._page = (Path(__file__).parent / "reference.html").read_bytes()

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """The page; it fetches the document itself."""
        return self._page


class ReferenceRouter(Router):
    """Without the framework's page for unknown addresses below it: those get the envelope like all others."""

    def register(self, value: ControllerRouterHandler) -> list[BaseRoute]:
        if isinstance(value, BaseRouteHandler) and "/{path:str}" in value.paths:
            return []
        return super().register(value)


def openapi_config() -> OpenAPIConfig:
    """The OpenAPI document at /schema/openapi.json, the page at /schema."""
    return OpenAPIConfig(
        title="Palimpsest",
        version=__version__,
        description=DESCRIPTION,
        openapi_router=ReferenceRouter(
            "/schema",
            route_handlers=[],
            include_in_schema=False,
            response_headers=[ResponseHeader(name="Content-Security-Policy", value=POLICY)],
        ),
        tags=TAGS,
        components=Components(
            security_schemes={"key": SecurityScheme(type="http", scheme="bearer", description="An API key, pk_...")}
        ),
        security=[{"key": []}],
        render_plugins=[ReferenceDocument(), ReferencePage()],
        use_handler_docstrings=True,
    )


def _describe_schemas(document: dict[str, Any]) -> None:
    """Puts what the code says of its structures and their fields into the reference; the framework reads types only."""
    known = {kind.__name__: kind for kind in _structures(msgspec.Struct)}
    for name, schema in document["components"]["schemas"].items():
        kind = known.get(name)
        for parent in reversed(kind.__mro__ if kind else ()):
            if parent.__module__.startswith("app."):
                _describe(schema, kind, *_texts(parent.__module__).get(parent.__name__, (None, {})))


def _structures(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _structures(child)


@cache
def _texts(module: str) -> dict[str, tuple[str | None, dict[str, str]]]:
    """What stands in quotes below each class and each of its fields."""
    found: dict[str, tuple[str | None, dict[str, str]]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if not isinstance(node, ast.ClassDef):
            continue
        fields: dict[str, str] = {}
        for field, below in pairwise(node.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    fields[name] = text
                case _:
                    pass
        found[node.name] = (ast.get_docstring(node), fields)
    return found


def _describe(schema: dict[str, Any], kind: Any, text: str | None, fields: dict[str, str]) -> None:
    if text:
        schema["description"] = text
    for field in msgspec.structs.fields(kind):
        described = schema.get("properties", {}).get(field.encode_name)
        if described is not None and field.name in fields:
            described["description"] = fields[field.name]
