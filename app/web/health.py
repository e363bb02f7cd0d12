"""Health, readiness, metrics and the description of the deployment."""

import asyncio
import hmac
import ipaddress
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import psycopg
from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from app import __version__
from app.db.catalogue import find_drift, read_policy_state
from app.db.database import Database, Row
from app.db.functions import functions_hash
from app.db.metadata import metadata
from app.db.releases import read_state
from app.errors import Forbidden, StartupError, Unauthenticated, Unavailable
from app.signing import ALGORITHM, Signer, encode_base64
from app.telemetry.metrics import CONTENT_TYPE, render_metrics
from app.web import queries

CHECK_EVERY_SECONDS = 5.0
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip")


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The process is up, with the row-level security policies as they were last read."""

    status: Literal["ok"] = "ok"
    rls_policies_ok: bool | None = None
    """Whether role, policies and grants are what this version needs; null before they were first read."""
    rls_policy_count: int | None = None
    """How many policies there are."""
    rls_policy_hash: str | None = None
    """SHA-256 of all policies; it changes when one of them does."""
    rls_checked_at: datetime | None = None
    """They are read at start and with `/ready`, at most every few seconds."""


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """Whether requests can be served, and the problems if not."""

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
    """The active embedding model."""

    provider: str
    model: str
    version: int
    dimensions: int


class Description(msgspec.Struct, frozen=True):
    """Public information about a deployment."""

    version: str
    api: str
    reference: str
    signing: SigningKey
    embedding: EmbeddingDeclaration | None
    """The active embedding model; null when vectors are disabled."""


class ReadinessCheck:
    """Checks that the database is reachable, migrated by a compatible release, with the right policies."""

    def __init__(self, db: Database, *, strict: bool) -> None:
        self._db = db
        self._strict = strict
        self._policies_checked = 0.0
        self._drift: list[str] = []
        self._health = Health()

    @property
    def health(self) -> Health:
        """The process is up; nothing is read for it."""
        return self._health

    async def run(self) -> Readiness:
        """Return the current state; policies are checked at most every few seconds."""
        try:
            state = await read_state(self._db.call, functions_hash=functions_hash())
            if state.problem is not None:
                return _not_ready(True, False, False, [state.problem])
            if time.monotonic() - self._policies_checked > CHECK_EVERY_SECONDS:
                async with self._db.autocommit() as connection:
                    self._drift = await find_drift(connection, metadata)
                    policies = await read_policy_state(connection)
                self._policies_checked = time.monotonic()
                self._health = Health(
                    rls_policies_ok=not self._drift,
                    rls_policy_count=policies.count,
                    rls_policy_hash=policies.hash,
                    rls_checked_at=datetime.now(UTC),
                )
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
    """Metrics of the queues, read from the database at most every few seconds."""

    def __init__(self) -> None:
        self._read_at = -CHECK_EVERY_SECONDS
        self._jobs: list[Row] = []
        self._embeddings: list[Row] = []

    async def read(self, db: Database) -> tuple[list[Row], list[Row]]:
        """Return the rows of `queue_metrics` and `embedding_metrics`, at most a few seconds old."""
        if time.monotonic() - self._read_at >= CHECK_EVERY_SECONDS:
            self._read_at = time.monotonic()
            try:
                self._jobs = await db.call(queries.QUEUE_METRICS)
                self._embeddings = await db.call(queries.EMBEDDING_METRICS)
            except (Unavailable, psycopg.Error):
                # Metrics of the process matter most while the database cannot be reached.
                self._jobs, self._embeddings = [], []
        return self._jobs, self._embeddings


class MetricsReader:
    """Renders metrics for those who may read them: holders of METRICS_TOKEN, or without one this machine alone."""

    def __init__(self, db: Database, token: str | None) -> None:
        self._db = db
        self._token = token
        self._figures = QueueFigures()
        self._rendering = asyncio.Lock()
        self._rendered = b""
        self._asked = self._answered = 0

    async def read(self, headers: Mapping[str, str], *, client: str | None) -> bytes:
        """Return the exposition text, or raise Unauthenticated or Forbidden; names of headers are in lower case."""
        self._check_access(headers, client)
        self._asked += 1
        number = self._asked
        async with self._rendering:
            if self._answered < number:
                # Everybody who has asked until now gets the same text, so that a flood is rendered a few times only.
                asked = self._asked
                figures = await self._figures.read(self._db)
                # In a thread, because it takes long once there are figures of many routes.
                self._rendered = await asyncio.to_thread(render_metrics, *figures)
                self._answered = asked
            return self._rendered

    def _check_access(self, headers: Mapping[str, str], client: str | None) -> None:
        if self._token is not None:
            given = headers.get("authorization", "")
            if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
                raise Unauthenticated(
                    "Send METRICS_TOKEN as `Authorization: Bearer ...`.", code="metrics_token_required"
                )
        # A proxy on this machine calls from loopback on behalf of anyone.
        elif not _is_loopback(client) or any(name in headers for name in FORWARDING_HEADERS):
            raise Forbidden(
                "Metrics are only for this machine. Set METRICS_TOKEN to read them from elsewhere.",
                code="metrics_local_only",
            )


def _is_loopback(client: str | None) -> bool:
    try:
        address = ipaddress.ip_address(client or "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@get("/health", security=[{}], summary="Check liveness", tags=["platform"])
async def health(readiness: NamedDependency[SkipValidation[ReadinessCheck]]) -> Health:
    """Return 200 as long as the process runs; for liveness probes. It reads nothing: the state of the policies is that
    of the last check, at start or by `/ready`."""
    return readiness.health


@get("/ready", security=[{}], summary="Check readiness", tags=["platform"])
async def ready(readiness: NamedDependency[SkipValidation[ReadinessCheck]]) -> Response[Readiness]:
    """Return 200 when database, migrations and policies are as required, else 503 with the problems."""
    state = await readiness.run()
    return Response(state, status_code=200 if state.status == "ready" else 503)


@get("/metrics", security=[{}], summary="Read metrics", tags=["platform"], media_type="text/plain")
async def metrics(
    request: Request[Any, Any, Any], metrics_reader: NamedDependency[SkipValidation[MetricsReader]]
) -> Response[bytes]:
    """Return metrics for Prometheus by route template and kind of job, without names of tenants.

    With METRICS_TOKEN they need it as a bearer token; without it only the machine itself may read them.
    """
    client = request.client.host if request.client is not None else None
    return Response(await metrics_reader.read(request.headers, client=client), media_type=CONTENT_TYPE)


@get("/.well-known/palimpsest", security=[{}], summary="Describe the deployment", tags=["platform"])
async def describe(
    db: NamedDependency[SkipValidation[Database]], signer: NamedDependency[SkipValidation[Signer]]
) -> Description:
    """Return the version, the public key that verifies erasure receipts, and the active embedding model."""
    key = encode_base64(await signer.public_key())
    models = await db.call(queries.ACTIVE_MODEL)
    return Description(
        version=__version__,
        api="/v1",
        reference="/schema",
        signing=SigningKey(algorithm=ALGORITHM, public_key=key),
        embedding=EmbeddingDeclaration(**models[0]) if models else None,
    )


router = Router(path="/", route_handlers=[health, ready, metrics, describe])
