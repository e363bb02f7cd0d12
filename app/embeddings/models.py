"""Embedding models: the registered ones, the active one, and checks against the settings."""

import time
from dataclasses import replace
from datetime import datetime
from typing import cast

import msgspec
import psycopg
import structlog

from app.config import Settings
from app.db.database import Database
from app.embeddings import queries
from app.errors import ConfigError, StartupError
from app.providers import local
from app.providers.base import (
    DIMENSIONALITY_MISMATCH,
    DIMENSIONS_BELOW_FLOOR,
    MIN_DIMENSIONS,
    ProviderError,
    ProviderMisconfigured,
)
from app.providers.build import (
    DEFAULT_EMBEDDING_MODELS,
    STYLES,
    ModelSpec,
    Provider,
    ProviderSettings,
    build_embedder,
    parse_model,
)
from app.providers.remote import NATIVE_DIMENSIONS
from app.providers.vectors import check_dimensions

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CACHED_SECONDS = 2.0
# The most dimensions that pgvector can index.
MAX_DIMENSIONS = 2000
# How long the start-up check waits for a provider.
CHECK_TIMEOUT_SECONDS = 3.0
ADDRESSES = {"ollama": "OLLAMA_URL", "openai": "OPENAI_BASE_URL", "voyage": "VOYAGE_BASE_URL"}


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A registered model."""

    model_id: int
    provider: str
    model: str
    version: int
    dimensions: int
    active: bool
    created_at: datetime

    @property
    def name(self) -> str:
        """The name for people and metrics."""
        return f"{self.provider}/{self.model}" + (f" v{self.version}" if self.version > 1 else "")

    def matches(self, spec: ModelSpec) -> bool:
        """Return whether a setting names this model, in any version."""
        model = spec.model or DEFAULT_EMBEDDING_MODELS.get(spec.provider)
        return (self.provider, self.model) == (spec.provider, model) and spec.dimensions in (None, self.dimensions)


async def list_models(db: Database) -> list[ModelRow]:
    """Return all registered models, ordered by id."""
    return [ModelRow(**row) for row in await db.call(queries.LIST_MODELS)]


class ActiveModel:
    """The model that recall uses, cached for two seconds: `await active(db)`; None when there is none."""

    def __init__(self, *, seconds: float = CACHED_SECONDS) -> None:
        self._seconds = seconds
        self._read_at = -seconds
        self._model: ModelRow | None = None

    async def __call__(self, db: Database) -> ModelRow | None:
        """Return the active model, at most `seconds` old."""
        if time.monotonic() - self._read_at >= self._seconds:
            found = await list_models(db)
            self._model = next((model for model in found if model.active), None)
            self._read_at = time.monotonic()
        return self._model


def provider_settings(settings: Settings) -> ProviderSettings:
    """Return the settings of providers."""
    return ProviderSettings(
        ollama_url=settings.ollama_url,
        openai_base_url=settings.openai_base_url,
        openai_api_key=settings.openai_api_key,
        voyage_base_url=settings.voyage_base_url,
        voyage_api_key=settings.voyage_api_key,
        timeout_seconds=settings.embedding_timeout_seconds,
    )


def configured_model(settings: Settings) -> ModelSpec | None:
    """Return the model that EMBEDDING_MODEL names, or None when it is not set; raise ConfigError when invalid."""
    if settings.embedding_model is None:
        return None
    try:
        return parse_model(settings.embedding_model)
    except ValueError as problem:
        raise ConfigError(
            f"EMBEDDING_MODEL cannot be used: {problem}.", details={"variable": "EMBEDDING_MODEL"}
        ) from problem


def with_dimensions(spec: ModelSpec, given: int | None) -> ModelSpec:
    """Return the spec with EMBEDDING_DIMENSIONS as its dimensions, unless it has its own."""
    return replace(spec, dimensions=given if spec.dimensions is None else spec.dimensions)


def check_storable(dimensions: int, spec: ModelSpec) -> None:
    """Raise ProviderMisconfigured unless these dimensions match the spec and can be stored."""
    check_dimensions(dimensions, expected=spec.dimensions, who=str(spec))
    if dimensions > MAX_DIMENSIONS:
        raise ProviderMisconfigured(
            f"{spec} makes vectors of {dimensions} dimensions; more than {MAX_DIMENSIONS} cannot be indexed. Ask for "
            f"shorter ones, as in {spec.provider}/{spec.model or DEFAULT_EMBEDDING_MODELS[spec.provider]}@1024, where "
            "the model can.",
            code="embed_dimensions_above_ceiling",
            details={"dimensions": dimensions, "maximum": MAX_DIMENSIONS},
        )


def known_dimensions(spec: ModelSpec) -> int | None:
    """Return the dimensions of a model if known without calling it, else None; raise StartupError when unusable."""
    family = (spec.model or DEFAULT_EMBEDDING_MODELS[spec.provider]).partition(":")[0]
    if spec.provider == "local":
        known = local.DIMENSIONS
    else:
        known = NATIVE_DIMENSIONS.get(family) if spec.dimensions is None else spec.dimensions
    try:
        if known is not None:
            check_storable(known, spec)
    except ProviderMisconfigured as problem:
        raise StartupError(
            f"EMBEDDING_MODEL: {problem.message} Give dimensions that the model supports, from {MIN_DIMENSIONS} to "
            f"{MAX_DIMENSIONS}, after @, or none; or choose another model.",
            code=problem.code,
            details=problem.details,
        ) from problem
    return known


async def check_models(db: Database, settings: Settings) -> ModelRow | None:
    """Return the active model; raise StartupError when the settings cannot work with the stored vectors.

    An EMBEDDING_MODEL that differs from the active model is only logged.
    """
    wanted = settings.embedding_dimensions
    if wanted is not None and wanted < MIN_DIMENSIONS:
        raise StartupError(
            f"EMBEDDING_DIMENSIONS is {wanted}; fewer than {MIN_DIMENSIONS} cannot distinguish texts. "
            "Choose a model with longer vectors.",
            code=DIMENSIONS_BELOW_FLOOR,
            details={"dimensions": wanted, "minimum": MIN_DIMENSIONS},
        )
    spec = configured_model(settings)
    if spec is not None and spec.provider != "none":
        # The local model has fixed dimensions; EMBEDDING_DIMENSIONS may belong to the active model instead.
        known_dimensions(spec if spec.provider == "local" else with_dimensions(spec, wanted))
    try:
        active = await ActiveModel()(db)
    except psycopg.errors.UndefinedTable:
        return None
    if wanted is not None and active is not None and wanted != active.dimensions:
        raise StartupError(
            f"EMBEDDING_DIMENSIONS is {wanted}, but vectors of the active model {active.name} have "
            f"{active.dimensions}. Unset it, or run palimpsest embeddings add PROVIDER/MODEL@{wanted}, let the worker "
            "fill that model, and activate it.",
            code=DIMENSIONALITY_MISMATCH,
            details={"dimensions": active.dimensions, "expected": wanted},
        )
    differs = active is not None if spec is None or spec.provider == "none" else not (active and active.matches(spec))
    if spec is not None and differs:
        log.warning(
            "embedding_model_differs",
            configured=str(spec),
            active=None if active is None else active.name,
            remedy=f"palimpsest embeddings add {spec}, then palimpsest embeddings activate {spec}; or unset "
            "EMBEDDING_MODEL",
        )
    return active


async def check_active(db: Database, settings: Settings) -> None:
    """Run check_models and raise StartupError when the active model returns vectors of other dimensions than stored.

    An unavailable, slow or misconfigured provider does not prevent the start.
    """
    model = await check_models(db, settings)
    if model is None or model.provider not in STYLES:
        return
    spec = ModelSpec(provider=cast("Provider", model.provider), model=model.model, dimensions=model.dimensions)
    timeout = min(CHECK_TIMEOUT_SECONDS, settings.embedding_timeout_seconds)
    try:
        embedder = build_embedder(spec, replace(provider_settings(settings), timeout_seconds=timeout))
        assert embedder is not None
        try:
            await embedder.embed(["Which model is this?"])
        finally:
            await embedder.aclose()
    except ProviderError as problem:
        if problem.code != DIMENSIONALITY_MISMATCH:
            log.warning("embedding_model_not_checked", model=model.name, error=problem.message)
            return
        raise StartupError(
            f"{problem.message} Set {ADDRESSES[model.provider]} to where the active model is still the one that was "
            "registered; or run palimpsest embeddings activate none, start, and add this one with --model-version "
            f"{model.version + 1}.",
            code=problem.code,
            details=problem.details,
        ) from problem
