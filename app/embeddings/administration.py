"""Administration of embedding models by the operator of the installation."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.exc import IntegrityError

from app.config import Settings
from app.db.database import Database
from app.db.scope import Scope
from app.embeddings import queries
from app.embeddings.models import (
    ModelRow,
    check_storable,
    configured_model,
    known_dimensions,
    list_models,
    provider_settings,
    with_dimensions,
)
from app.embeddings.tasks import LEAST_CONFIDENCE
from app.errors import BadRequest, Conflict, NotFound, StartupError
from app.providers.base import ProviderError
from app.providers.build import DEFAULT_EMBEDDING_MODELS, ModelSpec, build_embedder, parse_model

MIN_COVERAGE = 0.95
DELETE_BATCH = 5000
NONE = "none"

Say = Callable[[str], None]


async def model_status(owner: Database, *, least: float = LEAST_CONFIDENCE) -> list[dict[str, Any]]:
    """Return every model with the share of units that have a vector of it, over all tenants."""
    models = await list_models(owner)
    async with owner.system() as session:
        counted = await session.row(queries.COUNT_UNITS, {"least": least})
        vectors = {row["model_id"]: row["vectors"] for row in await session.rows(queries.COUNT_VECTORS)}
        queue = {row["model_id"]: row for row in await session.rows(queries.COUNT_QUEUE)}
    assert counted is not None
    return [_status(model, counted["units"], vectors.get(model.model_id, 0), queue) for model in models]


def _status(model: ModelRow, units: int, vectors: int, queue: dict[int, dict[str, Any]]) -> dict[str, Any]:
    waiting = queue.get(model.model_id, {"pending": 0, "failed": 0, "oldest": None})
    oldest: datetime | None = waiting["oldest"]
    return {
        "model_id": model.model_id,
        "model": f"{model.provider}/{model.model}",
        "version": model.version,
        "dimensions": model.dimensions,
        "active": model.active,
        "units": units,
        "vectors": vectors,
        "coverage": 1.0 if units == 0 else round(min(1.0, vectors / units), 4),
        "pending": waiting["pending"],
        "failed": waiting["failed"],
        "oldest_pending_seconds": None if oldest is None else int((datetime.now(UTC) - oldest).total_seconds()),
    }


async def add_model(owner: Database, settings: Settings, *, name: str, version: int, say: Say) -> dict[str, Any]:
    """Register a model that responds, create its indexes, and queue every unit for the worker."""
    spec = _spec(name)
    dimensions = await _ask_dimensions(spec, settings)
    return await _register(owner, spec, dimensions=dimensions, version=version, say=say)


def _spec(name: str) -> ModelSpec:
    try:
        spec = parse_model(name)
    except ValueError as problem:
        raise BadRequest(f"MODEL: {problem}.") from problem
    if spec.provider == NONE:
        raise BadRequest(
            "MODEL: none embeds nothing; to work without vectors, run palimpsest embeddings activate none."
        )
    return spec


async def _ask_dimensions(spec: ModelSpec, settings: Settings) -> int:
    """Return the dimensions of a model's vectors; raise when they differ from the spec or cannot be stored."""
    if spec.dimensions is not None:
        check_storable(spec.dimensions, spec)
    embedder = build_embedder(spec, provider_settings(settings))
    assert embedder is not None
    try:
        vectors = await embedder.embed(["Which model is this?"])
    finally:
        await embedder.aclose()
    check_storable(vectors.shape[1], spec)
    return vectors.shape[1]


async def _register(owner: Database, spec: ModelSpec, *, dimensions: int, version: int, say: Say) -> dict[str, Any]:
    name = spec.model or DEFAULT_EMBEDDING_MODELS[spec.provider]
    known = [m for m in await list_models(owner) if (m.provider, m.model, m.version) == (spec.provider, name, version)]
    if known and known[0].dimensions != dimensions:
        raise Conflict(
            f"{known[0].name} is registered with {known[0].dimensions} dimensions; give another --model-version.",
            code="embedding_model_exists",
        )
    model = known[0] if known else await _insert(owner, spec.provider, name, dimensions=dimensions, version=version)
    # The rest is idempotent: an interrupted command can be run again.
    await _make_indexes(owner, model)
    queued = await _queue_everything(owner)
    say(f"{model.name} is registered; {queued} units are queued for it")
    return {"model_id": model.model_id, "model": model.name, "dimensions": dimensions, "created": not known}


async def _insert(owner: Database, provider: str, name: str, *, dimensions: int, version: int) -> ModelRow:
    try:
        async with owner.system() as session:
            await session.execute(queries.LOCK_MODELS)
            row = await session.row(queries.NEXT_MODEL)
            assert row is not None
            values = {"provider": provider, "model": name, "version": version, "dimensions": dimensions, **row}
            # Left over of a model with this number whose removal was interrupted.
            await session.execute(queries.DELETE_QUEUE, row)
            await session.execute(queries.DELETE_COUNTS, row)
            await session.execute(queries.INSERT_MODEL, values)
    except IntegrityError as problem:
        raise Conflict("Another operator has just added this model.", code="embedding_model_exists") from problem
    await _delete_vectors(owner, row["model_id"])
    return next(model for model in await list_models(owner) if model.model_id == row["model_id"])


async def _make_indexes(owner: Database, model: ModelRow) -> None:
    parts = await _partitions(owner)
    for kind in queries.INDEXED:
        wanted = (queries.index_type(model.dimensions), queries.index_name(model.model_id, kind))
        found = await owner.call(queries.VALID_INDEX, wanted)
        if found and found[0]["usable"]:
            continue
        async with owner.autocommit() as connection:
            for statement in [
                *queries.drop_index(model.model_id, kind, parts),
                *queries.create_index(model.model_id, kind, model.dimensions, parts),
            ]:
                await connection.execute(statement.encode())


async def _partitions(owner: Database) -> list[str]:
    return [row["relname"] for row in await owner.call(queries.PARTITIONS)]


async def _queue_everything(owner: Database) -> int:
    """Queue every unit without a vector in every project; return how many."""
    async with owner.system() as session:
        projects = await session.rows(queries.LIST_PROJECTS)
    queued = 0
    for project in projects:
        async with owner.tenant(Scope(**project)) as session:
            row = await session.row(queries.RECONCILE, {"least": LEAST_CONFIDENCE})
            assert row is not None
            queued += row["queued"]
    return queued


async def _find(owner: Database, name: str, version: int | None) -> ModelRow:
    """Return a model by its number, or by its name and version; raise when unknown or ambiguous."""
    models = await list_models(owner)
    if name.isdecimal():
        found = [model for model in models if model.model_id == int(name)]
    else:
        spec = _spec(name)
        found = [model for model in models if model.matches(spec) and version in (None, model.version)]
    if not found:
        raise NotFound(
            f"MODEL: {name} is not registered; see palimpsest embeddings status.", code="embedding_model_unknown"
        )
    if len(found) > 1:
        versions = ", ".join(str(model.version) for model in found)
        raise BadRequest(f"--model-version: required; {name} is registered in versions {versions}.")
    return found[0]


async def activate_model(
    owner: Database, *, name: str, version: int | None, force: bool, least: float = LEAST_CONFIDENCE
) -> dict[str, Any]:
    """Make recall use this model from now on; the previous one keeps its vectors and can be activated again."""
    if name == NONE:
        async with owner.system() as session:
            await session.execute(queries.DEACTIVATE)
        return {"model_id": None, "model": NONE, "coverage": 0.0}
    model = await _find(owner, name, version)
    status = await model_status(owner, least=least)
    coverage = next(row["coverage"] for row in status if row["model_id"] == model.model_id)
    if coverage < MIN_COVERAGE and not force:
        raise Conflict(
            f"{model.name} covers {coverage:.1%} of all units; wait until the worker has reached {MIN_COVERAGE:.0%}, "
            "or use --force.",
            code="embedding_coverage_low",
            details={"coverage": coverage, "minimum": MIN_COVERAGE},
        )
    async with owner.system() as session:
        await session.execute(queries.LOCK_MODELS)
        await session.execute(queries.DEACTIVATE)
        changed = await session.execute(queries.ACTIVATE, {"model_id": model.model_id})
        if changed.rowcount != 1:
            raise NotFound(f"{model.name} was dropped in the meantime.", code="embedding_model_unknown")
    return {"model_id": model.model_id, "model": model.name, "coverage": coverage}


async def drop_model(owner: Database, *, name: str, version: int | None, say: Say) -> dict[str, Any]:
    """Remove an inactive model with its vectors, queue and indexes, or raise Conflict when it is active."""
    model = await _find(owner, name, version)
    async with owner.system() as session:
        await session.execute(queries.LOCK_MODELS)
        # First, so that nothing is queued for it and no vector of it is stored any more.
        if await session.row(queries.DELETE_MODEL, {"model_id": model.model_id}) is None:
            raise Conflict(
                f"{model.name} is active; activate another one first (or none: palimpsest embeddings activate none).",
                code="embedding_model_active",
            )
    parts = await _partitions(owner)
    async with owner.autocommit() as connection:
        for kind in queries.INDEXED:
            for statement in queries.drop_index(model.model_id, kind, parts):
                await connection.execute(statement.encode())
    async with owner.system() as session:
        await session.execute(queries.DELETE_QUEUE, {"model_id": model.model_id})
        await session.execute(queries.DELETE_COUNTS, {"model_id": model.model_id})
    deleted = await _delete_vectors(owner, model.model_id)
    say(f"{model.name} is dropped, and {deleted} vectors with it")
    return {"model_id": model.model_id, "model": model.name, "vectors": deleted}


async def _delete_vectors(owner: Database, model_id: int) -> int:
    async with owner.system() as session:
        tenants = [row["tenant_id"] for row in await session.rows(queries.TENANTS_WITH_VECTORS, {"model_id": model_id})]
    deleted = 0
    for tenant in tenants:
        arguments = {"tenant": tenant, "model_id": model_id, "limit": DELETE_BATCH}
        while True:
            async with owner.system() as session:
                count = (await session.execute(queries.DELETE_VECTORS, arguments)).rowcount
            deleted += count
            if count < DELETE_BATCH:
                break
    return deleted


async def adopt_model(owner: Database, settings: Settings, *, say: Say) -> None:
    """Replace the registered models by the one EMBEDDING_MODEL names, as long as there are no vectors."""
    spec = configured_model(settings)
    if spec is None:
        return
    models = await list_models(owner)
    active = next((model for model in models if model.active), None)
    if active is None if spec.provider == NONE else active is not None and active.matches(spec):
        return
    async with owner.system() as session:
        row = await session.row(queries.ANY_VECTOR)
    if row is None or row["found"]:
        return
    if spec.provider == NONE:
        await activate_model(owner, name=NONE, version=None, force=True)
    else:
        made = await _register(owner, spec, dimensions=await _dimensions(spec, settings), version=1, say=lambda _: None)
        await activate_model(owner, name=str(made["model_id"]), version=None, force=True)
        models = [model for model in models if model.model_id != made["model_id"]]
    for model in models:
        await drop_model(owner, name=str(model.model_id), version=None, say=lambda _: None)
    say(f"embeddings use {spec}, as set by EMBEDDING_MODEL")


async def _dimensions(spec: ModelSpec, settings: Settings) -> int:
    """Return the dimensions of a model; it is only called when they are neither known nor given."""
    spec = with_dimensions(spec, settings.embedding_dimensions)
    known = known_dimensions(spec)
    try:
        return await _ask_dimensions(spec, settings) if known is None else known
    except ProviderError as problem:
        raise StartupError(
            f"EMBEDDING_MODEL: {problem.message} Give the dimensions of its vectors, as in {spec.provider}/"
            f"{spec.model or 'MODEL'}@768, or start its provider first.",
            code=problem.code,
            details=problem.details,
        ) from problem
