"""The composition root: puts settings, database, edge and rooms together into one ASGI application."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import structlog
from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler

from app.config import Settings, read_settings
from app.db.catalogue import find_drift
from app.db.database import Database
from app.db.migrations import head_revision
from app.db.schema import load_metadata
from app.docs.routes import router as docs_router
from app.errors import AppError, ConfigError, StartupError
from app.facts.names import normalize_entity_name
from app.facts.routes import router as facts_router
from app.facts.upkeep.decay import decay
from app.facts.upkeep.routes import router as upkeep_router
from app.facts.upkeep.sources import refresh_trust
from app.history.routes import router as history_router
from app.history.tasks import eraser, seal
from app.jobs.registry import Job, Registry
from app.jobs.routes import router as jobs_router
from app.jobs.tasks import maintain
from app.notes.documents.fetching import Fetcher, FetchRules
from app.notes.documents.parsing import Parser
from app.notes.documents.routes import router as documents_router
from app.notes.documents.service import KIND as DOCUMENT_INGEST
from app.notes.documents.tasks import Ingestion
from app.notes.routes import router as notes_router
from app.objects.bridges.routes import router as bridges_router
from app.objects.routes import router as objects_router
from app.objects.types.routes import router as types_router
from app.objects.walking.routes import router as walking_router
from app.pipeline.models import Models
from app.pipeline.routes import router as pipeline_router
from app.pipeline.tasks import BACKOFF, ExtractTask, link
from app.pipeline.upkeep.routes import router as operations_router
from app.pipeline.upkeep.tasks import maintenance_cycle, retain
from app.recall.accesses import AccessCounts
from app.recall.cards.routes import router as cards_router
from app.recall.cards.tasks import refresh_cards
from app.recall.embedding.embedders import Embedders
from app.recall.embedding.models import check_models
from app.recall.embedding.routes import router as embedding_router
from app.recall.embedding.tasks import EmbedTask, reconcile, recount
from app.recall.graph.routes import router as graph_router
from app.recall.means import Means
from app.recall.query_vectors import ModelVectors
from app.recall.refining import Rerankers
from app.recall.routes import router as recall_router
from app.recall.tasks import clear_traces, reindex
from app.telemetry.logs import configure_logs
from app.telemetry.traces import configure_traces
from app.tenancy.keys import KeyUsage
from app.tenancy.routes import router as tenancy_router
from app.web import queries as web_queries
from app.web.auth import Access, Authenticator
from app.web.cursors import CursorSigner
from app.web.edge import Edge
from app.web.envelope import handle_error
from app.web.health import QueueFigures, ReadinessCheck
from app.web.health import router as health_router
from app.web.rate_limits import RateLimiter
from app.web.reference import ERROR_RESPONSES, openapi_config
from app.web.requests import ApiRequest, guard, provide_once, provide_who
from app.web.signing import Signer

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def open_database(settings: Settings) -> Database:
    """The database as the service sees it; not connected yet."""
    if settings.database_url is None:
        raise ConfigError("Set DATABASE_URL, or use `palimpsest serve`, which starts the embedded server.")
    return Database(
        settings.database_url,
        direct_conninfo=settings.database_direct_url,
        pool_size=settings.pool_size,
        prepared=settings.prepared_statements,
    )


async def maintenance(job: Job) -> None:
    """Clears away what has outlived its use, in every room."""
    await clear_traces(job)
    await maintain(job)


def build_registry(db: Database, settings: Settings, *, embedders: Embedders | None = None) -> Registry:
    """The handlers of every kind of job."""
    registry = Registry()
    registry.register("maintenance", maintenance)
    registry.register("retention", retain)
    registry.register("maintenance_cycle", maintenance_cycle)
    registry.register("reindex", reindex)
    registry.register("seal", seal)
    registry.register("decay", decay)
    registry.register("trust", refresh_trust)
    registry.register("card_refresh", refresh_cards)
    embedders = embedders or Embedders(settings)
    extract = ExtractTask(Models(settings), ModelVectors(db, embedders))
    registry.register("extract", extract, backoff=BACKOFF)
    registry.register("embed", EmbedTask(embedders, settings, gives_way=extract.is_busy))
    registry.register("graph_link", link, backoff=BACKOFF)
    registry.register("embed_reconcile", reconcile)
    registry.register("recount", recount)
    fetcher = Fetcher(fetch_rules(settings), seconds=settings.document_fetch_seconds)
    registry.register(DOCUMENT_INGEST, Ingestion(fetcher, Parser()))
    registry.register("erase", eraser(Signer(db, settings.signing_key)))
    return registry


def fetch_rules(settings: Settings) -> FetchRules:
    """What may be fetched from the web."""
    return FetchRules.of(enabled=settings.document_fetch, networks=settings.document_fetch_networks)


async def check_policies(db: Database, *, strict: bool) -> None:
    """Refuses to go on when role or policies are not exactly what they must be; warns only when not strict."""
    async with db.autocommit() as connection:
        drift = await find_drift(connection, load_metadata())
    if not drift:
        return
    if strict:
        raise StartupError(
            "The database does not enforce isolation as this version needs it:\n"
            + "\n".join(f"  - {line}" for line in drift)
            + "\nPut it right, or set RLS_POLICY_STRICT=off to start with a warning only.",
            code="policy_drift",
            details={"drift": drift},
        )
    log.warning("policy_drift", drift=drift)


class CursorSecret(CursorSigner):
    """A signer whose secret arrives when the application starts."""

    def __init__(self) -> None:
        super().__init__(b"")

    def load(self, secret: bytes) -> None:
        self._secret = secret


def create_app(settings: Settings, *, db: Database | None = None) -> Litestar:
    """The application, ready to be wrapped by the Edge."""
    load_metadata()
    database = db or open_database(settings)
    authenticator = Authenticator(database, settings.platform_key)
    limiter = RateLimiter(database, settings)
    usage = KeyUsage(database)
    cursors = CursorSecret()
    vectors = ModelVectors(database, Embedders(settings))
    accesses = AccessCounts(database)
    rerankers = Rerankers(settings)
    denied = frozenset(normalize_entity_name(name) for name in settings.legal_hold_denied)
    readiness = ReadinessCheck(database, head=head_revision(), strict=settings.rls_policy_strict)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None]:
        try:
            await database.open()
            await check_policies(database, strict=settings.rls_policy_strict)
            await check_models(database, settings)
        except AppError as problem:
            # The server that runs us keeps such failures to itself.
            log.error("start_refused", code=problem.code, message=problem.message)
            raise
        cursors.load(await _cursor_secret(database, settings))
        flushing = [asyncio.create_task(usage.run()), asyncio.create_task(accesses.run())]
        try:
            yield
        finally:
            for task in flushing:
                task.cancel()
            try:
                await usage.flush()
                await accesses.flush()
                await vectors.aclose()
                await rerankers.aclose()
            finally:
                await database.close()

    values: dict[str, Any] = {
        "db": database,
        "cursors": cursors,
        "readiness": readiness,
        "metrics_token": settings.metrics_token,
        "limits": limiter.defaults,
        "queue_figures": QueueFigures(),
        "hold_denied": denied,
        "expand_cap": settings.expand_cap,
        "fetch_rules": fetch_rules(settings),
        "recall_means": Means(vectors=vectors, accesses=accesses, denied=denied, rerankers=rerankers),
        "signer": Signer(database, settings.signing_key),
    }
    api = Router(
        path="/v1",
        route_handlers=[
            tenancy_router,
            notes_router,
            documents_router,
            facts_router,
            bridges_router,
            upkeep_router,
            history_router,
            graph_router,
            types_router,
            objects_router,
            walking_router,
            embedding_router,
            recall_router,
            cards_router,
            pipeline_router,
            jobs_router,
            operations_router,
        ],
        guards=[guard(authenticator, limiter, usage.note)],
        dependencies={
            "who": Provide(provide_who, sync_to_thread=False),
            "once": Provide(provide_once),
        },
    )
    app = Litestar(
        route_handlers=[api, health_router, docs_router],
        dependencies={name: Provide(_always(value), sync_to_thread=False) for name, value in values.items()},
        exception_handlers={Exception: handle_error},
        request_class=ApiRequest,
        request_max_body_size=settings.max_body_bytes,
        lifespan=[lifespan],
        state=State({"authenticator": authenticator, "limiter": limiter}),
        openapi_config=openapi_config(),
        logging_config=None,
        debug=False,
    )
    _finish_routes(app)
    return app


def _always(value: Any) -> Any:
    def provide() -> Any:
        return value

    return provide


async def _cursor_secret(db: Database, settings: Settings) -> bytes:
    if settings.cursor_secret is not None:
        return settings.cursor_secret.encode()
    (row,) = await db.call(web_queries.CURSOR_SECRET)
    return row["secret"]


def _finish_routes(app: Litestar) -> None:
    """Every route under /v1 says who may use it, or the service does not start; and all document the same errors."""
    for route in app.routes:
        for handler in getattr(route, "route_handlers", ()):
            if not isinstance(handler, HTTPRouteHandler) or handler.http_methods == {"OPTIONS"}:
                continue
            if route.path.startswith("/v1"):
                if not isinstance(handler.opt.get("access"), Access):
                    raise StartupError(f"{route.path} declares no access")
                handler.responses = {**ERROR_RESPONSES, **(handler.responses or {})}


def asgi() -> Edge:
    """What the server process loads."""
    settings = read_settings()
    configure_logs(settings.log_level)
    configure_traces(settings.otlp_endpoint, service="palimpsest-api")
    app = Edge(create_app(settings))
    # An answer is made of thousands of small objects, none of them in a cycle: looking for one every 700 of them, and
    # through all that was loaded, takes longer than many a query.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    return app
