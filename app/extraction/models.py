"""The models that projects extract with, each built on first use and guarded by a circuit breaker."""

from collections import OrderedDict
from collections.abc import Callable
from typing import cast

from app.config import Settings
from app.providers.base import Completer, ProviderMisconfigured
from app.providers.breaker import Breaker, BreakerPolicy
from app.providers.build import ModelSpec, Provider, ProviderSettings, build_completer
from app.tenancy.settings import PipelineSettings

MAX_MODELS = 256
# A failed call costs a job an attempt. When a model is down, the breaker postpones the other jobs without that.
POLICY = BreakerPolicy(probe_seconds=30.0, consecutive_downs=20, min_attempts=60)

Build = Callable[[ModelSpec], Completer]


class GuardedModel:
    """One model and its circuit breaker."""

    def __init__(self, spec: ModelSpec, build: Build) -> None:
        self.spec = spec
        self.breaker = Breaker(POLICY)
        self._build = build
        self._completer: Completer | None = None

    def completer(self) -> Completer:
        """Return the client, built on first use so that a missing API key affects only its own model."""
        if self._completer is None:
            self._completer = self._build(self.spec)
        return self._completer

    async def aclose(self) -> None:
        """Close the client's connections."""
        if self._completer is not None:
            await self._completer.aclose()


class Models:
    """The models of this process."""

    def __init__(self, settings: Settings, *, build: Build | None = None) -> None:
        self._providers = ProviderSettings(
            ollama_url=settings.ollama_url,
            openai_base_url=settings.openai_base_url,
            openai_api_key=settings.openai_api_key,
        )
        self._build = build or self._from_settings
        self._models: OrderedDict[tuple[str, ModelSpec], GuardedModel] = OrderedDict()

    def of(self, tenant_id: str, settings: PipelineSettings) -> GuardedModel:
        """Return the model of a project; each tenant has its own breaker, so that tenants don't affect each other."""
        spec = ModelSpec(provider=cast("Provider", settings.extraction_provider), model=settings.extraction_model)
        key = (tenant_id, spec)
        if key not in self._models:
            self._models[key] = GuardedModel(spec, self._build)
        self._models.move_to_end(key)
        if len(self._models) > MAX_MODELS:
            # Dropped but not closed: a call may be in progress. Its connections are closed with the object.
            self._models.popitem(last=False)
        return self._models[key]

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for model in self._models.values():
            await model.aclose()

    def _from_settings(self, spec: ModelSpec) -> Completer:
        completer = build_completer(spec, self._providers)
        if completer is None:
            raise ProviderMisconfigured(f"{spec} is not a model that writes text.")
        return completer
