"""Traces: OpenTelemetry spans for requests and jobs, sent only when an endpoint is configured."""

from collections.abc import Generator
from contextlib import contextmanager

from opentelemetry import trace

_tracer = trace.get_tracer("palimpsest")
_enabled = False


def configure_traces(endpoint: str | None, *, service: str) -> None:
    """Start exporting spans if an endpoint is configured."""
    global _enabled
    if endpoint is None:
        return
    # Imported only when needed: the exporter takes as long to load as the rest of the service.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    _enabled = True


@contextmanager
def span(name: str, **attributes: str) -> Generator[trace.Span | None]:
    """Open a span around a block, or do nothing while traces are off."""
    if not _enabled:
        yield None
        return
    with _tracer.start_as_current_span(name, attributes=attributes) as current:
        yield current
