"""Health, readiness, metrics."""

import hmac
import time
from typing import Any, Literal

import msgspec
import psycopg
from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from app import __version__
from app.db.catalogue import find_drift
from app.db.database import Database, Row
from app.db.functions import functions_hash
from app.db.metadata import metadata
from app.db.releases import read_state
from app.errors import StartupError, Unauthenticated, Unavailable
from app.signing import ALGORITHM, Signer, encoded
from app.telemetry.metrics import CONTENT_TYPE, render_metrics
from app.web import queries

CHECK_EVERY_SECONDS = 5.0


class Health(msgspec.Struct, frozen=True):
    """The process is up."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests can be served, and what stands in the way."""

    status: Literal["ready", "not_ready"]
    database: bool
    migrations: bool
    policies: bool
    problems: list[str]


class SigningKey(msgspec.Struct, frozen=True):
    algorithm: str
    public_key: str
    """32 bytes in base64."""


class EmbeddingDeclaration(msgspec.Struct, frozen=True):
    """The model that recall searches by; None of it where nothing is embedded."""

    provider: str
    model: str
    version: int
    dimensions: int


class Description(msgspec.Struct, frozen=True):
    """What a deployment says of itself to anybody."""

    version: str
    api: str
    reference: str
    signing: SigningKey
    embedding: EmbeddingDeclaration | None
    """What vectors are made with; dimensions never differ within a model."""


class ReadinessCheck:
    """Asks the database whether it is there, migrated by this release or a compatible one, with the right policies."""

    def __init__(self, db: Database, *, strict: bool) -> None:
        self._db = db
        self._strict = strict
        self._policies_checked = 0.0
        self._drift: list[str] = []

    async def run(self) -> Readiness:
        """Return the state now; policies are looked at anew every few seconds."""
        try:
            state = await read_state(self._db.call, functions_hash=functions_hash())
            if state.problem is not None:
                return _not_ready(True, False, False, [state.problem])
            if time.monotonic() - self._policies_checked > CHECK_EVERY_SECONDS:
                async with self._db.autocommit() as connection:
                    self._drift = await find_drift(connection, metadata)
                self._policies_checked = time.monotonic()
        except (Unavailable, psycopg.OperationalError) as problem:
            return _not_ready(False, False, False, [str(problem)])
        except (psycopg.errors.UndefinedTable, psycopg.errors.InsufficientPrivilege):
            return _not_ready(True, False, False, ["The schema is not there; run palimpsest migrate."])
        except StartupError as problem:
            return _not_ready(True, False, False, [problem.message])
        if self._drift and self._strict:
            return _not_ready(True, True, False, self._drift)
        return Readiness(status="ready", database=True, migrations=True, policies=not self._drift, problems=self._drift)


def _not_ready(database: bool, migrations: bool, policies: bool, problems: list[str]) -> Readiness:
    return Readiness(status="not_ready", database=database, migrations=migrations, policies=policies, problems=problems)


class QueueFigures:
    """The figures of the queues, asked for at most every few seconds however many scrape."""

    def __init__(self) -> None:
        self._read_at = -CHECK_EVERY_SECONDS
        self._jobs: list[Row] = []
        self._embeddings: list[Row] = []

    async def read(self, db: Database) -> tuple[list[Row], list[Row]]:
        """Of jobs and of what is to be embedded, now or a moment ago."""
        if time.monotonic() - self._read_at >= CHECK_EVERY_SECONDS:
            self._read_at = time.monotonic()
            try:
                self._jobs = await db.call(queries.QUEUE_METRICS)
                self._embeddings = await db.call(queries.EMBEDDING_METRICS)
            except (Unavailable, psycopg.Error):
                # The process's own figures are worth having most when the database is away.
                self._jobs, self._embeddings = [], []
        return self._jobs, self._embeddings


@get("/health", security=[{}], summary="Is the process up?", tags=["platform"])
async def health() -> Health:
    """Touches nothing; for liveness probes."""
    return Health()


@get("/ready", security=[{}], summary="Can it serve?", tags=["platform"])
async def ready(readiness: NamedDependency[SkipValidation[ReadinessCheck]]) -> Response[Readiness]:
    """200 when database, migrations and policies are as they must be, else 503 with the problems."""
    state = await readiness.run()
    return Response(state, status_code=200 if state.status == "ready" else 503)


@get("/metrics", security=[{}], summary="Metrics for Prometheus", tags=["platform"], media_type="text/plain")
async def metrics(
    request: Request[Any, Any, Any],
    db: NamedDependency[SkipValidation[Database]],
    metrics_token: NamedDependency[SkipValidation[str | None]],
    queue_figures: NamedDependency[SkipValidation[QueueFigures]],
) -> Response[bytes]:
    """Counters and timings by route template and kind of job; no tenant is named."""
    if metrics_token is not None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {metrics_token}".encode()):
            raise Unauthenticated("Send METRICS_TOKEN as `Authorization: Bearer ...`.", code="metrics_token_required")
    return Response(render_metrics(*await queue_figures.read(db)), media_type=CONTENT_TYPE)


@get("/.well-known/palimpsest", security=[{}], summary="What this deployment is", tags=["platform"])
async def describe(
    db: NamedDependency[SkipValidation[Database]], signer: NamedDependency[SkipValidation[Signer]]
) -> Description:
    """Version, the public key by which receipts of erasure are verified, and what vectors are made with."""
    key = encoded(await signer.public_key())
    models = await db.call(queries.ACTIVE_MODEL)
    return Description(
        version=__version__,
        api="/v1",
        reference="/schema",
        signing=SigningKey(algorithm=ALGORITHM, public_key=key),
        embedding=EmbeddingDeclaration(**models[0]) if models else None,
    )


router = Router(path="/", route_handlers=[health, ready, metrics, describe])
