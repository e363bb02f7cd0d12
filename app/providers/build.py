"""Builds the provider of a model from its name, such as `ollama/nomic-embed-text`."""

import re
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast, get_args

from app.providers import local
from app.providers.base import Completer, Embedder, ProviderMisconfigured, Reranker
from app.providers.completion import OPENAI_HOST, OllamaCompleter, OpenAICompleter
from app.providers.http import JsonClient
from app.providers.local import LocalEmbedder
from app.providers.remote import Ollama, OpenAI, RemoteEmbedder, Voyage
from app.providers.reranking import RemoteReranker
from app.providers.vectors import check_dimensions

Provider: TypeAlias = Literal["none", "local", "ollama", "openai", "voyage"]
PROVIDERS: tuple[Provider, ...] = get_args(Provider)

DEFAULT_EMBEDDING_MODELS: dict[Provider, str] = {
    "local": local.MODEL,
    "ollama": "nomic-embed-text",
    "openai": "text-embedding-3-small",
    "voyage": "voyage-3-lite",
}
STYLES = {"ollama": Ollama, "openai": OpenAI, "voyage": Voyage}
HOSTED = (OPENAI_HOST, "api.voyageai.com")
_SPEC = re.compile(r"(?P<provider>[a-z]+)(/(?P<model>[^\s@]+))?(@(?P<dimensions>\d{1,5}))?")


@dataclass(frozen=True, kw_only=True)
class ProviderSettings:
    """Addresses and API keys of providers."""

    ollama_url: str = "http://127.0.0.1:11434"
    openai_base_url: str = "https://api.openai.com/v1"
    openai_api_key: str | None = field(default=None, repr=False)
    voyage_base_url: str = "https://api.voyageai.com/v1"
    voyage_api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 30.0


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A provider, its model and, for embeddings, optionally the number of dimensions."""

    provider: Provider
    model: str | None = None
    dimensions: int | None = None

    def __str__(self) -> str:
        model = f"/{self.model}" if self.model else ""
        return f"{self.provider}{model}" + ("" if self.dimensions is None else f"@{self.dimensions}")


def parse_model(raw: str) -> ModelSpec:
    """Parse `provider`, `provider/model` or `provider/model@dimensions`, or raise ValueError.

    The name of a model may contain slashes and colons: `ollama/nomic-embed-text:v1.5`, `openai/BAAI/bge-m3@1024`.
    """
    found = _SPEC.fullmatch(raw.strip())
    if found is None or found["provider"] not in PROVIDERS:
        raise ValueError(
            f"expected one of {', '.join(PROVIDERS)}, optionally with a model, "
            "such as ollama/nomic-embed-text or openai/text-embedding-3-small@512"
        )
    provider = cast("Provider", found["provider"])
    if provider == "none" and (found["model"] or found["dimensions"]):
        raise ValueError("none has no model")
    if provider == "local" and found["model"] not in {None, local.MODEL}:
        raise ValueError(f"local has one model, {local.MODEL}")
    dimensions = int(found["dimensions"]) if found["dimensions"] else None
    return ModelSpec(provider=provider, model=found["model"], dimensions=dimensions)


def build_embedder(spec: ModelSpec, settings: ProviderSettings) -> Embedder | None:
    """Return the embedder of a spec, not yet connected or loaded; None for `none`, which disables vectors."""
    if spec.provider == "none":
        return None
    model = spec.model or DEFAULT_EMBEDDING_MODELS[spec.provider]
    if spec.provider == "local":
        if spec.dimensions is not None:
            check_dimensions(local.DIMENSIONS, expected=spec.dimensions, who=f"local/{model}")
        return LocalEmbedder()
    style = STYLES[spec.provider]()
    if spec.dimensions is not None:
        check_dimensions(spec.dimensions, expected=None, who=f"{spec.provider}/{model}")
    return RemoteEmbedder(_client(spec.provider, settings), style, model=model, dimensions=spec.dimensions)


def build_completer(spec: ModelSpec, settings: ProviderSettings) -> Completer | None:
    """Return the completer of a spec; None for `none`."""
    if spec.provider == "none":
        return None
    if spec.provider == "openai" and spec.model:
        return OpenAICompleter(_client(spec.provider, settings, completing=True), model=spec.model)
    if spec.provider == "ollama" and spec.model:
        return OllamaCompleter(_client(spec.provider, settings, completing=True), model=spec.model)
    raise ProviderMisconfigured(f"{spec} cannot complete texts; give a model, such as openai/... or ollama/... .")


def build_reranker(spec: ModelSpec, settings: ProviderSettings) -> Reranker | None:
    """Return the reranker of a spec; None for `none`."""
    if spec.provider == "none":
        return None
    if spec.provider in {"openai", "voyage"} and spec.model:
        return RemoteReranker(_client(spec.provider, settings), model=spec.model)
    raise ProviderMisconfigured(f"{spec} cannot rerank; give a model, such as voyage/rerank-2-lite or openai/... .")


def _client(provider: Provider, settings: ProviderSettings, *, completing: bool = False) -> JsonClient:
    # Jobs that complete texts have retries of their own, and record the error message of the server.
    options: dict[str, Any] = {"timeout_seconds": settings.timeout_seconds, "quote_errors": completing}
    if completing:
        options["retries"] = 0
    if provider == "ollama":
        return JsonClient(provider, settings.ollama_url, **options)
    url, key = {
        "openai": (settings.openai_base_url, settings.openai_api_key),
        "voyage": (settings.voyage_base_url, settings.voyage_api_key),
    }[provider]
    # Self-hosted servers with OpenAI's API often need no key; the hosted services always do.
    if not key and any(f"//{host}/" in url for host in HOSTED):
        raise ProviderMisconfigured(f"{provider} needs an API key; set it.", details={"provider": provider})
    return JsonClient(provider, url, api_key=key or None, **options)
