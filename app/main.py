"""The composition root: builds settings, database, the web layer and the domains into one ASGI application."""

import asyncio
import gc
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog
from litestar import Litestar, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.routes import HTTPRoute

from app.config import Settings, read_settings
from app.db.catalogue import find_drift
from app.db.database import Database
from app.db.schema import load_metadata
from app.docs.routes import router as docs_router
from app.domains import modules_of
from app.embeddings.embedders import Embedders
from app.errors import AppError, ConfigError, StartupError
from app.jobs.registry import JobContext, Registry
from app.paging import CursorSigner
from app.signing import Signer
from app.telemetry.logs import configure_logs
from app.telemetry.traces import configure_traces
from app.tenancy.keys import KeyUsage
from app.web import queries as web_queries
from app.web.auth import Access, Authenticator
from app.web.dependencies import Provided, ServiceContext
from app.web.edge import Edge
from app.web.envelope import handle_error
from app.web.health import MetricsReader, ReadinessCheck
from app.web.health import router as health_router
from app.web.monitoring import monitoring
from app.web.query_parameters import check_parameters, declare_parameters
from app.web.rate_limits import RateLimiter
from app.web.reference import ERROR_RESPONSES, UNPROCESSABLE, openapi_config
from app.web.requests import Admission, ApiRequest, guard, provide_idempotent_request, provide_who

log: structlog.stdlib.BoundLogger = structlog.get_logger()


def open_database(settings: Settings) -> Database:
    """Return the database as the service sees it, not connected yet."""
    if settings.database_url is None:
        raise ConfigError("Set DATABASE_URL, or use `palimpsest serve`, which starts the embedded server.")
    return Database(
        settings.database_url,
        direct_conninfo=settings.database_direct_url,
        pool_size=settings.pool_size,
        prepared=settings.prepared_statements,
    )


def build_registry(db: Database, settings: Settings, *, embedders: Embedders | None = None) -> Registry:
    """Return the handlers of every kind of job."""
    registry = Registry()
    context = JobContext(db=db, settings=settings, embedders=embedders or Embedders(settings))
    for module in modules_of("jobs"):
        module.register_jobs(registry, context)
    return registry


async def check_policies(db: Database, *, strict: bool) -> None:
    """Raise StartupError when role or policies are not exactly what they must be; only warn when not strict."""
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


def create_app(settings: Settings, *, db: Database | None = None) -> Litestar:
    """Return the application, ready to be wrapped by the Edge."""
    load_metadata()
    database = db or open_database(settings)
    authenticator = Authenticator(database, settings.platform_key)
    limiter = RateLimiter(database, settings)
    usage = KeyUsage(database)
    cursors = CursorSigner(ttl_seconds=settings.cursor_ttl_seconds)
    readiness = ReadinessCheck(database, strict=settings.rls_policy_strict)
    context = ServiceContext(db=database, settings=settings)
    provided = [
        Provided(background=(usage.run,), close=(usage.flush,)),
        *(module.provide(context) for module in modules_of("dependencies")),
    ]

    values: dict[str, Any] = {
        "db": database,
        "cursors": cursors,
        "readiness": readiness,
        "metrics_reader": MetricsReader(database, settings.metrics_token),
        "limits": limiter.defaults,
        "signer": Signer(database, settings.signing_key),
    }
    for part in provided:
        values |= part.values
    api = Router(
        path="/v1",
        route_handlers=[module.router for module in modules_of("routers")],
        guards=[guard(authenticator, limiter, Admission(settings), usage.note)],
        dependencies={
            "who": Provide(provide_who, sync_to_thread=False),
            "idempotent": Provide(provide_idempotent_request),
        },
    )
    app = Litestar(
        route_handlers=[api, health_router, docs_router],
        dependencies={name: Provide(_always(value), sync_to_thread=False) for name, value in values.items()},
        guards=[check_parameters],
        exception_handlers={Exception: handle_error},
        request_class=ApiRequest,
        request_max_body_size=settings.max_body_bytes,
        lifespan=[lambda _: _running(database, settings, readiness=readiness, cursors=cursors, provided=provided)],
        state=State({"authenticator": authenticator, "limiter": limiter}),
        openapi_config=openapi_config(),
        logging_config=None,
        debug=False,
    )
    _finish_routes(app)
    return app


@asynccontextmanager
async def _running(
    db: Database,
    settings: Settings,
    *,
    readiness: ReadinessCheck,
    cursors: CursorSigner,
    provided: Sequence[Provided],
) -> AsyncGenerator[None]:
    """Open the database, check it and run background tasks as long as the application runs."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(db.close)
        try:
            await db.open()
            await check_policies(db, strict=settings.rls_policy_strict)
            await readiness.run()
            for part in provided:
                if part.check is not None:
                    await part.check()
        except AppError as problem:
            # The server process would not report the reason.
            log.error("start_refused", code=problem.code, message=problem.message)
            raise
        cursors.load(await _cursor_secret(db, settings))
        for part in provided:
            _run_alongside(stack, part)
        await stack.enter_async_context(monitoring(db, settings))
        yield


def _run_alongside(stack: AsyncExitStack, part: Provided) -> None:
    """Start what runs in the background, and arrange for it to end before its resources are closed."""
    for close in reversed(part.close):
        stack.push_async_callback(close)
    for run in part.background:
        stack.callback(asyncio.create_task(run()).cancel)


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
    """Refuse to start with a route under /v1 that declares no access; declare what all routes have in common."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute):
            raise StartupError(f"{route.path} is not an HTTP route; its query parameters would not be checked")
        declare_parameters(route)
        for handler in route.route_handlers:
            if handler.http_methods == {"OPTIONS"} or not route.path.startswith("/v1"):
                continue
            access = handler.opt.get("access")
            if not isinstance(access, Access):
                raise StartupError(f"{route.path} declares no access")
            errors = ERROR_RESPONSES if access.work == "read" else {**ERROR_RESPONSES, **UNPROCESSABLE}
            handler.responses = {**errors, **(handler.responses or {})}


def asgi() -> Edge:
    """Return what the server process loads."""
    settings = read_settings()
    configure_logs(settings.log_level)
    configure_traces(settings.otlp_endpoint, service="palimpsest-api")
    app = Edge(create_app(settings))
    # A response is made of thousands of small objects, none of them in a cycle: looking for one every 700 of them, and
    # through all that was loaded, takes longer than many a query.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    return app
