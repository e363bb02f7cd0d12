"""Metrics for Prometheus, labelled by route template, kind and code, never by raw path, tenant or key."""

import os
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY, Collector

# The framework adds the charset.
CONTENT_TYPE = "text/plain; version=0.0.4"

REQUESTS = Counter("palimpsest_requests", "Requests by route template and status.", ["method", "route", "status"])
REQUEST_SECONDS = Histogram(
    "palimpsest_request_seconds",
    "Duration of a request.",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
RATE_LIMITED = Counter("palimpsest_rate_limited", "Requests refused with 429.", ["work"])
ADMISSION_SECONDS = Histogram(
    "palimpsest_admission_wait_seconds",
    "Time that requests above the share of their tenant, or of the process, waited for their turn.",
    buckets=(0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
ADMISSION_REFUSED = Counter(
    "palimpsest_admission_refused", "Requests refused because they waited too long, or too many waited.", ["reason"]
)
JOBS = Counter("palimpsest_jobs", "Jobs by kind and how an attempt ended.", ["kind", "outcome"])
JOB_SECONDS = Histogram(
    "palimpsest_job_seconds",
    "Duration of one attempt.",
    ["kind"],
    buckets=(0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300),
)
JOB_WAIT_SECONDS = Histogram(
    "palimpsest_job_wait_seconds",
    "Time from when a job is due until it is leased.",
    ["kind"],
    buckets=(0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 1800),
)
LLM_CALLS = Counter("palimpsest_llm_calls", "Calls of language models, by purpose and outcome.", ["purpose", "outcome"])
LLM_SECONDS = Histogram(
    "palimpsest_llm_duration_seconds",
    "Duration of a call of a language model.",
    ["purpose"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
LLM_TOKENS = Counter("palimpsest_llm_tokens", "Tokens read and written by language models.", ["direction"])
EMBEDDING_SECONDS = Histogram(
    "palimpsest_embedding_duration_seconds",
    "Duration of embedding one batch or query.",
    ["model"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60),
)
EMBEDDING_FAILURES = Counter(
    "palimpsest_embedding_failures",
    "Failed calls of an embedding provider and texts that could not be sent to it, by reason.",
    ["model", "reason"],
)
EMBEDDING_BREAKER = Gauge(
    "palimpsest_embedding_breaker_state",
    "State of a provider's circuit breaker: closed (0), half open (1) or open (2).",
    ["model"],
    multiprocess_mode="mostrecent",
)
WALK_SECONDS = Histogram(
    "palimpsest_graph_walk_seconds",
    "Duration of a graph traversal over objects.",
    ["operation"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
WALKS_TRUNCATED = Counter(
    "palimpsest_graph_walks_truncated",
    "Graph traversals cut short by a limit, by limit.",
    ["operation", "bound"],
)
WALK_DEPTH = Histogram(
    "palimpsest_graph_walk_depth", "Hops to the farthest object of a traversal.", ["operation"], buckets=range(9)
)
_COUNTS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000)
WALK_NODES = Histogram("palimpsest_graph_walk_nodes", "Objects reached by a traversal.", ["operation"], buckets=_COUNTS)
WALK_EDGES = Histogram(
    "palimpsest_graph_walk_edges", "Relationships returned by a traversal.", ["operation"], buckets=_COUNTS
)


def observe_walk(operation: str, *, seconds: float, truncated: str | None, depth: int, nodes: int, edges: int) -> None:
    """Record one graph traversal; `truncated` names the limit that was reached, if any."""
    WALK_SECONDS.labels(operation).observe(seconds)
    WALK_DEPTH.labels(operation).observe(depth)
    WALK_NODES.labels(operation).observe(nodes)
    WALK_EDGES.labels(operation).observe(edges)
    if truncated is not None:
        WALKS_TRUNCATED.labels(operation, truncated).inc()


CHANGE_PATHS = Histogram(
    "palimpsest_change_paths",
    "Paths that differ between consecutive versions of an object.",
    buckets=(0, 1, 2, 5, 10, 20, 50, 100, 500, 1000),
)
CHANGE_SUMMARY_BYTES = Histogram(
    "palimpsest_change_summary_size_bytes",
    "Size of change summaries.",
    buckets=(128, 256, 512, 1024, 2048, 4096, 8192, 16384),
)
CHANGES_TRUNCATED = Counter("palimpsest_change_truncated", "Change summaries that were truncated.")


class _QueueCollector(Collector):
    """Gauges of the job queue from rows of `queue_metrics`."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = list(rows)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        depth = GaugeMetricFamily("palimpsest_queue_jobs", "Jobs in the queue.", labels=["kind", "status"])
        oldest = GaugeMetricFamily("palimpsest_queue_oldest_seconds", "Age of the oldest due job.", labels=["kind"])
        for row in self._rows:
            depth.add_metric([row["kind"], row["status"]], row["jobs"])
            if row["status"] == "pending":
                oldest.add_metric([row["kind"]], row["oldest_seconds"])
        return [depth, oldest]


class _EmbeddingCollector(Collector):
    """Gauges of the embedding backlog from rows of `embedding_metrics`."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = list(rows)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        named = {
            "pending": GaugeMetricFamily(
                "palimpsest_embedding_pending", "Units waiting to be embedded.", labels=["model"]
            ),
            "failed": GaugeMetricFamily(
                "palimpsest_embedding_failed", "Pending units that the provider refused.", labels=["model"]
            ),
            "coverage": GaugeMetricFamily(
                "palimpsest_embedding_coverage_ratio", "Share of units that have a vector.", labels=["model"]
            ),
            "oldest_seconds": GaugeMetricFamily(
                "palimpsest_embedding_staleness_seconds",
                "Age of the oldest pending unit that was not refused.",
                labels=["model"],
            ),
        }
        for row in self._rows:
            known = row["vectors"] + row["pending"]
            figures = {**row, "coverage": row["vectors"] / known if known else 1.0}
            for name, family in named.items():
                family.add_metric([row["model"]], figures[name])
        return list(named.values())


def render_metrics(queue: Iterable[dict[str, Any]], embeddings: Iterable[dict[str, Any]]) -> bytes:
    """Return the exposition text of this process, or of all processes that share a metrics folder."""
    extra = CollectorRegistry()
    extra.register(_QueueCollector(queue))
    extra.register(_EmbeddingCollector(embeddings))
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(extra)
        return generate_latest(extra)
    return generate_latest(REGISTRY) + generate_latest(extra)
