"""The models vectors are made with: which there are, which one is active, and whether the settings agree."""

import time
from datetime import datetime

import msgspec
import psycopg
import structlog

from app.config import Settings
from app.db.database import Database
from app.errors import ConfigError, StartupError
from app.providers.base import DIMENSIONALITY_MISMATCH, DIMENSIONS_BELOW_FLOOR, MIN_DIMENSIONS
from app.providers.build import DEFAULT_EMBEDDING_MODELS, ModelSpec, ProviderSettings, parse_model
from app.recall.embedding import queries

log: structlog.stdlib.BoundLogger = structlog.get_logger()

CACHED_SECONDS = 2.0


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
        """As people and metrics name it."""
        return f"{self.provider}/{self.model}" + (f" v{self.version}" if self.version > 1 else "")

    def matches(self, spec: ModelSpec) -> bool:
        """Whether a setting means this model, of whatever version."""
        model = spec.model or DEFAULT_EMBEDDING_MODELS.get(spec.provider)
        return (self.provider, self.model) == (spec.provider, model) and spec.dimensions in (None, self.dimensions)


async def list_models(db: Database) -> list[ModelRow]:
    """All registered models, by id."""
    return [ModelRow(**row) for row in await db.call(queries.LIST_MODELS)]


class ActiveModel:
    """The model that recall searches by, remembered for two seconds: `await active(db)`; None when there is none."""

    def __init__(self, *, seconds: float = CACHED_SECONDS) -> None:
        self._seconds = seconds
        self._read_at = -seconds
        self._model: ModelRow | None = None

    async def __call__(self, db: Database) -> ModelRow | None:
        """The active model now, or a moment ago."""
        if time.monotonic() - self._read_at >= self._seconds:
            found = await list_models(db)
            self._model = next((model for model in found if model.active), None)
            self._read_at = time.monotonic()
        return self._model


def provider_settings(settings: Settings) -> ProviderSettings:
    """Where providers are, of all the settings."""
    return ProviderSettings(
        ollama_url=settings.ollama_url,
        openai_base_url=settings.openai_base_url,
        openai_api_key=settings.openai_api_key,
        voyage_base_url=settings.voyage_base_url,
        voyage_api_key=settings.voyage_api_key,
        timeout_seconds=settings.embedding_timeout_seconds,
    )


def configured_model(settings: Settings) -> ModelSpec | None:
    """What EMBEDDING_MODEL names; None when it is not set."""
    if settings.embedding_model is None:
        return None
    try:
        return parse_model(settings.embedding_model)
    except ValueError as problem:
        raise ConfigError(
            f"EMBEDDING_MODEL cannot be used: {problem}.", details={"variable": "EMBEDDING_MODEL"}
        ) from problem


async def check_models(db: Database, settings: Settings) -> None:
    """Refuses to go on when EMBEDDING_DIMENSIONS is not what is stored; warns when EMBEDDING_MODEL is another one."""
    wanted = settings.embedding_dimensions
    if wanted is not None and wanted < MIN_DIMENSIONS:
        raise StartupError(
            f"EMBEDDING_DIMENSIONS is {wanted}; fewer than {MIN_DIMENSIONS} cannot tell texts apart. "
            "Choose a model with longer vectors.",
            code=DIMENSIONS_BELOW_FLOOR,
            details={"dimensions": wanted, "minimum": MIN_DIMENSIONS},
        )
    spec = configured_model(settings)
    try:
        active = await ActiveModel()(db)
    except psycopg.errors.UndefinedTable:
        return
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
