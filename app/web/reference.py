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
from litestar.enums import HttpMethod
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme, Tag
from litestar.routes import BaseRoute
from litestar.types import ControllerRouterHandler
from litestar.types.internal_types import PathParameterDefinition

from app import __version__
from app.web.descriptions import FIELDS
from app.web.envelope import ErrorEnvelope
from app.web.examples import EXAMPLES

DESCRIPTION = """Long-term memory for agents and the products around them, on plain PostgreSQL.

Send your key as `Authorization: Bearer pk_...`; a key that spans projects also names one in `X-Project-Id`.
Errors are `{"error": {"code", "message", "request_id", "details"}}`. Lists answer `next_cursor`,
valid for 300 seconds by default. `Idempotency-Key` on a POST that creates makes it safe to repeat for 24 hours."""

# In the order in which people need them.
TAGS = [
    Tag(name="notes", description="What was said, with the history of every change."),
    Tag(name="recall", description="The facts and notes that fit a query, best first; memory cards; traces."),
    Tag(name="users", description="End users and their threads: what is stored of each, export and erasure."),
    Tag(name="facts", description="What is believed, with its evidence, true from and to."),
    Tag(name="entities", description="Who and what facts are about: one entity for each name, whatever its spelling."),
    Tag(name="predicates", description="The vocabulary of facts. It grows by itself; you decide about it later."),
    Tag(name="documents", description="Long texts, files and pages, read into notes in the background."),
    Tag(name="truth", description="Conflicts and how they end, decay, and how far sources are trusted."),
    Tag(name="graph", description="Neighbours of an entity in the graph of facts."),
    Tag(name="objects", description="What is curated: typed, versioned, never lost; and walks over it."),
    Tag(name="relationships", description="Directed links between objects, with versions of their own."),
    Tag(name="types", description="Which properties objects and relationships have, and what may be linked."),
    Tag(name="forgetting", description="Tombstones, legal holds, erasure and its receipts; for administrators."),
    Tag(name="gardens", description="Shared areas of a project, with members."),
    Tag(name="pipeline", description="What models make of notes: settings, reviews, and what it costs."),
    Tag(name="jobs", description="Background work, followed to its end."),
    Tag(name="tenancy", description="Who the caller is."),
    Tag(name="platform", description="Health, readiness, metrics."),
    Tag(name="operations", description="How healthy a project is, and repairs."),
    Tag(name="administration", description="Tenants, projects, keys, redaction and the audit log."),
]
# Within a tag: what is used first, then by path; and what creates before what reads.
FIRST_PATHS = ("/v1/recall", "/v1/cards", "/v1/conflicts", "/v1/graph/objects", "/v1/projects", "/v1/admin/keys")
METHODS = ("post", "get", "put", "patch", "delete")

# Operation ids come from the names of handlers; these read better outside of their module.
OPERATION_IDS = {
    "POST /v1/recall": "recall",
    "GET /v1/recall": "recallShort",
    "GET /v1/recall/traces/{trace_id}": "getRecallTrace",
    "GET /v1/recall/traces/{trace_id}/replay": "replayRecallTrace",
    "POST /v1/facts": "createFact",
    "POST /v1/facts/batch": "createFacts",
    "GET /v1/facts/{fact_id}/history": "getFactHistory",
    "GET /v1/facts/{fact_id}/provenance": "getFactProvenance",
    "GET /v1/notes/{note_id}/history": "listNoteHistory",
    "GET /v1/documents/{document_id}/notes": "listDocumentNotes",
    "GET /v1/gardens/{garden_id}/members": "listGardenMembers",
    "PUT /v1/gardens/{garden_id}/members/{agent}": "putGardenMember",
    "DELETE /v1/gardens/{garden_id}/members/{agent}": "removeGardenMember",
    "POST /v1/decay/policies": "createDecayPolicy",
    "GET /v1/decay/policies": "listDecayPolicies",
    "DELETE /v1/decay/policies/{policy_id}": "deleteDecayPolicy",
    "POST /v1/decay/sweep": "sweepDecay",
    "POST /v1/graph/batch": "createGraphBatch",
    "POST /v1/graph/objects/batch": "createObjectBatch",
    "POST /v1/graph/expand": "expandObjects",
    "POST /v1/graph/traverse": "traverseObjects",
    "GET /v1/projects/{project_id}/settings": "getProjectSettings",
    "PUT /v1/projects/{project_id}/settings": "putProjectSettings",
    "GET /v1/usage": "getUsage",
    "GET /v1/admin/audit-log": "listAuditEvents",
    "POST /v1/repair/{action}": "repairProject",
    "GET /health": "getHealth",
    "GET /ready": "getReadiness",
    "GET /metrics": "getMetrics",
    "GET /.well-known/palimpsest": "describeDeployment",
}
# Items of batches are converted one by one, so that an error names its item; what each has to be is told here.
BATCH_ITEMS = {
    ("NoteBatch", "notes"): "NoteCreate",
    ("FactBatch", "facts"): "FactCreate",
    ("GraphBatch", "objects"): "BatchObject",
    ("GraphBatch", "relationships"): "BatchRelationship",
}


def _errors(texts: dict[int, str]) -> dict[int, ResponseSpec]:
    return {
        status: ResponseSpec(data_container=ErrorEnvelope, description=text, generate_examples=False)
        for status, text in texts.items()
    }


ERROR_RESPONSES = _errors(
    {
        400: "Malformed; the message names the field.",
        401: "No key, or one that is unknown, revoked or expired.",
        403: "The key may not do this.",
        404: "Unknown, hidden, or of another tenant: all alike.",
        408: "The body did not arrive in time.",
        409: "The state does not allow it, or an Idempotency-Key was used for something else.",
        413: "The body is over the limit.",
        429: "The budget of the key or of a repair, or the tenant's share of requests, is used up; see Retry-After.",
        503: "The database cannot be reached or has no space left, or the service is busy; see Retry-After.",
    }
)
# Of everything that writes.
UNPROCESSABLE = _errors(
    {422: "Well formed, but it does not fit a JSON Schema or a garden's scope, or changes what cannot be changed."}
)


def also(status: int, body: Any, text: str) -> dict[int, ResponseSpec]:
    """Return the documentation of a second successful response."""
    return {status: ResponseSpec(data_container=body, description=text, generate_examples=False)}


# The page is one file with everything in it: nothing else may be loaded, and only our own API be called.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


class ReferenceDocument(JsonRenderPlugin):
    """Serves the OpenAPI document; it is completed at the first request, not at every start."""

    def __init__(self) -> None:
        super().__init__()
        self._rendered: bytes | None = None

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the document with descriptions, examples and typed batches, in the order people need."""
        if self._rendered is None:
            _describe_schemas(openapi_schema)
            _type_batches(openapi_schema)
            _add_examples(openapi_schema)
            openapi_schema["paths"] = _ordered(openapi_schema["paths"])
            self._rendered = super().render(request, openapi_schema)
        return self._rendered


class ReferencePage(OpenAPIRenderPlugin):
    """Serves the one page."""

    def __init__(self) -> None:
        super().__init__(path="/")
        self._page = (Path(__file__).parent / "reference.html").read_bytes()

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        """Return the page, which fetches the document by itself."""
        return self._page


class ReferenceRouter(Router):
    """Without the framework's page for unknown addresses below it: those get the envelope like all others."""

    def register(self, value: ControllerRouterHandler) -> list[BaseRoute]:
        if isinstance(value, BaseRouteHandler) and "/{path:str}" in value.paths:
            return []
        return super().register(value)


def openapi_config() -> OpenAPIConfig:
    """Return the configuration of the OpenAPI document at /schema/openapi.json and the page at /schema."""
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
        operation_id_creator=operation_id,
        use_handler_docstrings=True,
    )


def operation_id(
    handler: HTTPRouteHandler, method: str | HttpMethod, components: list[str | PathParameterDefinition]
) -> str:
    """Return a short id such as `createNote`, from the name of the handler."""
    parts = [part if isinstance(part, str) else f"{{{part.name}}}" for part in components]
    named = OPERATION_IDS.get(f"{HttpMethod(method).value} /{'/'.join(parts)}")
    first, *rest = handler.handler_name.split("_")
    return named or first + "".join(word.title() for word in rest)


def _operations(paths: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in paths.items():
        for method, operation in item.items():
            yield path, method, operation


def _ordered(paths: dict[str, Any]) -> dict[str, Any]:
    """Return the paths by tag, then what is used first; within a path what creates comes first."""
    tags = {tag.name: place for place, tag in enumerate(TAGS)}

    def place(path: str) -> tuple[int, int, str]:
        tag = min(tags[operation["tags"][0]] for operation in paths[path].values())
        return tag, next((n for n, first in enumerate(FIRST_PATHS) if path.startswith(first)), len(FIRST_PATHS)), path

    return {path: dict(sorted(paths[path].items(), key=_method_order)) for path in sorted(paths, key=place)}


def _method_order(item: tuple[str, Any]) -> int:
    return METHODS.index(item[0]) if item[0] in METHODS else len(METHODS)


def _add_examples(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document["paths"]):
        example = EXAMPLES.get(f"{method.upper()} {path}")
        if example is not None:
            for media in operation["requestBody"]["content"].values():
                media["example"] = example


def _type_batches(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    known = {kind.__name__: kind for kind in _structures(msgspec.Struct)}
    for (batch, field), item in BATCH_ITEMS.items():
        if item not in schemas:
            _, parts = msgspec.json.schema_components([known[item]], ref_template="#/components/schemas/{name}")
            schemas |= {name: part for name, part in parts.items() if name not in schemas}
            _describe_schemas({"components": {"schemas": {item: schemas[item]}}})
        schemas[batch]["properties"][field]["items"] = {"$ref": f"#/components/schemas/{item}"}


def _describe_schemas(document: dict[str, Any]) -> None:
    """Put what the code says of its structures and their fields into the document; the framework reads types only."""
    known = {name: kind for kind in _structures(msgspec.Struct) for name in _component_names(kind)}
    for name, schema in document["components"]["schemas"].items():
        kind = known.get(name)
        for parent in reversed(kind.__mro__ if kind else ()):
            if parent.__module__.startswith("app."):
                _describe(schema, kind, *_texts(parent.__module__).get(parent.__name__, (None, {})))
        for field, described in schema.get("properties", {}).items():
            text = FIELDS.get(f"{name}.{field}") or FIELDS.get(field)
            if text and "description" not in described:
                described["description"] = text


def _component_names(kind: type) -> Iterator[str]:
    """Yield the names a structure may have in the document: its own, or a longer one where two share it."""
    *packages, module = kind.__module__.split(".")
    yield kind.__name__
    yield f"{module}_{kind.__name__}"
    yield f"{'.'.join(packages[-1:])}_{module}_{kind.__name__}"


def _structures(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _structures(child)


@cache
def _texts(module: str) -> dict[str, tuple[str | None, dict[str, str]]]:
    """Return the docstrings of the classes of a module and of their fields."""
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
