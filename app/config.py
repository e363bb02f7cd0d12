"""Settings of a process, read once from the environment; each variable is described where it is declared."""

import base64
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from app.errors import ConfigError

TRUE_WORDS = {"1", "true", "yes", "on"}
FALSE_WORDS = {"0", "false", "no", "off"}


def _boolean(raw: str) -> bool:
    word = raw.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError("expected on or off")


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(raw: str) -> int:
        if not raw.strip().isdecimal() or not low <= int(raw) <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return int(raw)

    return parse


def _decimal(low: float, high: float) -> Callable[[str], float]:
    def parse(raw: str) -> float:
        try:
            number = float(raw)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low} to {high}")
        return number

    return parse


def _level(raw: str) -> str:
    level = raw.strip().lower()
    if level not in {"debug", "info", "warning", "error"}:
        raise ValueError("expected debug, info, warning or error")
    return level


def _host(raw: str) -> str:
    try:
        return str(socket.getaddrinfo(raw.strip(), None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        raise ValueError("expected an address of this machine, such as 127.0.0.1") from None


def _endpoint(raw: str) -> str:
    if not raw.startswith(("http://", "https://")):
        raise ValueError("expected an address such as http://collector:4318")
    return raw


def _word(raw: str) -> str:
    word = raw.strip()
    if any(character.isspace() for character in word) or not word.isprintable():
        raise ValueError("expected one word without spaces")
    return word


def _address(raw: str) -> str:
    address = raw.strip().rstrip("/")
    if not address.startswith(("http://", "https://")):
        raise ValueError("expected an address such as http://127.0.0.1:11434")
    return address


def _secret(raw: str) -> str:
    if len(raw) < 24 or not raw.isascii() or any(character.isspace() for character in raw):
        raise ValueError("expected at least 24 ASCII characters without spaces")
    return raw


def _names(raw: str) -> frozenset[str]:
    return frozenset(name.strip() for name in raw.split(",") if name.strip())


def _networks(raw: str) -> frozenset[str]:
    try:
        return frozenset(str(ipaddress.ip_network(network)) for network in _names(raw))
    except ValueError:
        raise ValueError("expected networks separated by commas, such as 10.0.0.0/8,fd00::/8") from None


def _signing_key(raw: str) -> bytes:
    try:
        seed = base64.b64decode(raw.strip(), validate=True)
    except ValueError:
        seed = b""
    if len(seed) != 32:
        raise ValueError("expected 32 bytes in base64, such as `openssl rand -base64 32` prints")
    return seed


def _url(raw: str) -> str:
    scheme, separator, rest = raw.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        raise ValueError("expected postgresql://user:password@host:port/database")
    # A SQLAlchemy style URL names its driver, which libpq does not accept.
    url = f"postgresql://{rest}"
    try:
        conninfo_to_dict(url)
    except ProgrammingError:
        # Without the reason: it quotes the part it could not read, which may be the password.
        raise ValueError("not a PostgreSQL URL; percent-encode special characters in the password") from None
    return url


def _setting(variable: str, parse: Callable[[str], Any], default: Any, help_text: str) -> Any:
    return field(default=default, metadata={"variable": variable, "parse": parse, "help": help_text})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a process; app/docs/configuration.md is generated from them."""

    database_url: str | None = _setting(
        "DATABASE_URL",
        _url,
        None,
        "Where the service connects, as palimpsest_app. Unset: the embedded PostgreSQL.",
    )
    database_migration_url: str | None = _setting(
        "DATABASE_MIGRATION_URL",
        _url,
        None,
        "Where `palimpsest migrate` connects, as palimpsest_owner or a role that can become it. Unset: DATABASE_URL.",
    )
    database_direct_url: str | None = _setting(
        "DATABASE_DIRECT_URL",
        _url,
        None,
        "A connection that bypasses a transaction-mode pooler, for LISTEN. Unset: DATABASE_URL.",
    )
    prepared_statements: bool = _setting(
        "PREPARED_STATEMENTS", _boolean, True, "Turn off behind a pooler that does not support prepared statements."
    )
    pool_size: int = _setting(
        "DATABASE_POOL_SIZE",
        _whole(1, 500),
        8,
        "Connections of each process in each of its two pools (single calls; transactions).",
    )
    home: Path = _setting(
        "PALIMPSEST_HOME",
        lambda raw: Path(raw).expanduser().resolve(),
        Path(".palimpsest"),
        "Data of the embedded server.",
    )
    host: str = _setting("HOST", _host, "127.0.0.1", "Address to listen on.")
    port: int = _setting("PORT", _whole(1, 65535), 8000, "Port to listen on.")
    monitoring_port: int = _setting(
        "MONITORING_PORT",
        _whole(0, 65535),
        0,
        "Port of its own for /health, /ready and /metrics, which a flood of PORT cannot block, on HOST; 0 = none.",
    )
    max_connections: int = _setting(
        "MAX_CONNECTIONS",
        _whole(0, 10**6),
        0,
        "Connections that each API process accepts at once. 0 = what its limit of open files allows.",
    )
    header_seconds: float = _setting(
        "HEADER_SECONDS",
        _decimal(0.1, 60),
        30.0,
        "How long a connection may take to send the head of a request, and stay idle between two.",
    )
    web_processes: int = _setting("WEB_CONCURRENCY", _whole(1, 64), 1, "API processes that share the port.")
    log_level: str = _setting("LOG_LEVEL", _level, "info", "debug, info, warning or error.")
    rls_policy_strict: bool = _setting(
        "RLS_POLICY_STRICT",
        _boolean,
        True,
        "Refuse to start when the role or policies are not as expected; off: only warn.",
    )
    platform_key: str | None = _setting(
        "PLATFORM_KEY",
        _secret,
        None,
        "The key that creates tenants over HTTP. Unset: only the one created on the command line.",
    )
    cursor_secret: str | None = _setting(
        "CURSOR_SECRET", _secret, None, "Signs page cursors. Unset: a secret kept in the database."
    )
    cursor_ttl_seconds: int = _setting(
        "CURSOR_TTL_SECONDS", _whole(10, 86_400), 300, "How long the cursor of a next page is valid."
    )
    signing_key: bytes | None = _setting(
        "SIGNING_KEY",
        _signing_key,
        None,
        "Signs erasure receipts (Ed25519): 32 bytes in base64. Unset: the database signs, with a key that it keeps.",
    )
    legal_hold_denied: frozenset[str] = _setting(
        "LEGAL_HOLD_DENIED",
        _names,
        frozenset(),
        "Names of entities under legal hold, separated by commas, whose history administrators cannot read; * = all.",
    )
    metrics_token: str | None = _setting(
        "METRICS_TOKEN",
        _secret,
        None,
        "The bearer token that /metrics requires. Unset: only this machine may read them.",
    )
    max_body_bytes: int = _setting(
        "MAX_BODY_BYTES", _whole(1024, 256 * 1024 * 1024), 8 * 1024 * 1024, "Largest request body."
    )
    body_seconds: float = _setting(
        "BODY_SECONDS", _decimal(0.1, 3600), 30.0, "How long a request body may take to arrive, else 408."
    )
    request_concurrency: int = _setting(
        "REQUEST_CONCURRENCY",
        _whole(0, 10_000),
        0,
        "Requests that each process runs at once; the others wait, tenants in turn. 0 = DATABASE_POOL_SIZE.",
    )
    tenant_concurrency: int = _setting(
        "TENANT_CONCURRENCY",
        _whole(1, 10_000),
        4,
        "Requests of one tenant that each process runs at once; recall counts as two, a batch as one more per 100.",
    )
    request_wait_seconds: float = _setting(
        "REQUEST_WAIT_SECONDS", _decimal(0.05, 600), 30.0, "How long a request may wait for its turn, else 429 or 503."
    )
    tenant_waiting: int = _setting(
        "TENANT_WAITING", _whole(1, 10**6), 1000, "Requests of one tenant that may wait in each process, else 429."
    )
    max_json_values: int = _setting(
        "MAX_JSON_VALUES",
        _whole(1000, 10**8),
        250_000,
        "Most values (objects, lists, texts, numbers) in one JSON body, which take time to decode, else 413.",
    )
    rate_limit_read: int = _setting(
        "RATE_LIMIT_READ",
        _whole(0, 10**9),
        600_000,
        "Reads a minute for each key that has no limit of its own; 0 = no limit.",
    )
    rate_limit_write: int = _setting(
        "RATE_LIMIT_WRITE", _whole(0, 10**9), 120_000, "Writes a minute for each key; 0 = no limit."
    )
    rate_limit_admin: int = _setting(
        "RATE_LIMIT_ADMIN", _whole(0, 10**9), 6_000, "Administrative calls a minute for each key; 0 = no limit."
    )
    rate_limit_expand: int = _setting(
        "RATE_LIMIT_EXPAND",
        _whole(0, 10**9),
        600,
        "Graph expansions a minute for each key, which also count as reads; 0 = no limit.",
    )
    expand_cap: int = _setting(
        "EXPAND_CAP", _whole(2, 10**6), 60_000, "Upper bound of an expansion's limit_nodes times its depth."
    )
    worker_concurrency: int = _setting("WORKER_CONCURRENCY", _whole(1, 500), 10, "Jobs a worker runs at once.")
    lease_seconds: float = _setting(
        "LEASE_SECONDS", _decimal(0.5, 3600), 30.0, "How long a worker holds a job without renewing its lease."
    )
    poll_seconds: float = _setting(
        "POLL_SECONDS", _decimal(0.05, 60), 1.0, "How often a worker polls when it is not notified."
    )
    drain_seconds: float = _setting(
        "DRAIN_SECONDS", _decimal(0, 600), 25.0, "How long running work may continue after SIGTERM."
    )
    embedding_model: str | None = _setting(
        "EMBEDDING_MODEL",
        _word,
        None,
        "PROVIDER/MODEL of a new installation (local, ollama, openai, voyage; or none). Unset: local/all-MiniLM-L6-v2.",
    )
    embedding_dimensions: int | None = _setting(
        "EMBEDDING_DIMENSIONS",
        _whole(1, 100_000),
        None,
        "Refuse to start unless the active model has this many dimensions. Unset: any.",
    )
    ollama_url: str = _setting("OLLAMA_URL", _address, "http://127.0.0.1:11434", "Address of Ollama.")
    openai_base_url: str = _setting(
        "OPENAI_BASE_URL",
        _address,
        "https://api.openai.com/v1",
        "Address of OpenAI, or of a server with the same API.",
    )
    openai_api_key: str | None = _setting(
        "OPENAI_API_KEY", _word, None, "The API key for OPENAI_BASE_URL, if it needs one."
    )
    voyage_base_url: str = _setting("VOYAGE_BASE_URL", _address, "https://api.voyageai.com/v1", "Address of Voyage.")
    voyage_api_key: str | None = _setting("VOYAGE_API_KEY", _word, None, "The API key for Voyage.")
    embedding_timeout_seconds: float = _setting(
        "EMBEDDING_TIMEOUT_SECONDS", _decimal(0.1, 600), 30.0, "Timeout of a request to an embedding provider."
    )
    embed_batch_size: int = _setting("EMBED_BATCH_SIZE", _whole(1, 1000), 32, "Texts embedded and stored at once.")
    embed_breaker_min_attempts: int = _setting(
        "EMBED_BREAKER_MIN_ATTEMPTS",
        _whole(1, 10**6),
        30,
        "Attempts within five minutes before the failure rate is considered.",
    )
    embed_failure_rate_breaker: float = _setting(
        "EMBED_FAILURE_RATE_BREAKER",
        _decimal(0, 1),
        0.4,
        "Failure rate above which the circuit breaker of a provider opens.",
    )
    embed_breaker_half_open_seconds: float = _setting(
        "EMBED_BREAKER_HALF_OPEN_SECONDS",
        _decimal(0.01, 86_400),
        120.0,
        "How often a provider with an open breaker is tried again, with at most three texts.",
    )
    embed_reembed_seconds: float = _setting(
        "EMBED_REEMBED_SECONDS",
        _decimal(0, 86_400),
        30.0,
        "A text that changes again within this time waits before it is embedded again.",
    )
    embed_min_confidence: float = _setting(
        "EMBED_MIN_CONFIDENCE",
        _decimal(0, 1),
        0.1,
        "Facts of no more confidence than this get no vector; facts that cross it later follow within a day.",
    )
    embedding_qps: float = _setting(
        "EMBEDDING_QPS",
        _decimal(0, 10_000),
        0.0,
        "Requests a second that each worker sends to an embedding provider at most, besides queries; 0 = no limit.",
    )
    card_max_age_seconds: int = _setting(
        "CARD_MAX_AGE_SECONDS",
        _whole(60, 30 * 86_400),
        86_400,
        "A memory card that was built longer ago is stale and is built again.",
    )
    retention_deleted_days: int = _setting(
        "RETENTION_DELETED_DAYS",
        _whole(30, 3650),
        30,
        "Days until deleted notes are purged; they can be recovered for 30 days.",
    )
    retention_history_days: int = _setting(
        "RETENTION_HISTORY_DAYS",
        _whole(1, 3650),
        180,
        "Days until the history of notes is purged; as_of reads texts of notes as far back as that.",
    )
    retention_finished_jobs_days: int = _setting(
        "RETENTION_FINISHED_JOBS_DAYS", _whole(1, 3650), 14, "Days until completed and cancelled jobs are purged."
    )
    retention_failed_jobs_days: int = _setting(
        "RETENTION_FAILED_JOBS_DAYS", _whole(1, 3650), 30, "Days until dead and failed jobs are purged."
    )
    retention_records_days: int = _setting(
        "RETENTION_RECORDS_DAYS", _whole(1, 3650), 90, "Days until records of model calls and of repairs are purged."
    )
    document_fetch: bool = _setting(
        "DOCUMENT_FETCH", _boolean, True, "Whether documents may be fetched from the web by URL."
    )
    document_fetch_networks: frozenset[str] = _setting(
        "DOCUMENT_FETCH_NETWORKS",
        _networks,
        frozenset(),
        "Private networks (CIDR, separated by commas) from which documents may be fetched.",
    )
    document_fetch_seconds: float = _setting(
        "DOCUMENT_FETCH_SECONDS", _decimal(0.1, 600), 30.0, "Timeout of fetching one document, in total."
    )
    document_readers: int = _setting(
        "DOCUMENT_READERS",
        _whole(1, 64),
        4,
        "Documents a worker parses at once; each may use up to 1 GiB of memory.",
    )
    otlp_endpoint: str | None = _setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT", _endpoint, None, "Where traces go (OTLP over HTTP). Unset: no traces."
    )

    @property
    def embedded(self) -> bool:
        """Whether the embedded PostgreSQL is used."""
        return self.database_url is None and self.database_migration_url is None


ENVIRONMENT_VARIABLES: tuple[str, ...] = tuple(item.metadata["variable"] for item in fields(Settings))


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process, or raise ConfigError that names the variable."""
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for item in fields(Settings):
        variable = item.metadata["variable"]
        raw = source.get(variable, "")
        if not raw.strip():
            continue
        try:
            values[item.name] = item.metadata["parse"](raw)
        except ValueError as problem:
            raise ConfigError(f"{variable} cannot be used: {problem}.", details={"variable": variable}) from problem
    values.setdefault("home", Path(".palimpsest").resolve())
    return Settings(**values)
