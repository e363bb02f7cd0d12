"""The domains of the service, and what each of them registers."""

import importlib
from collections.abc import Iterator
from typing import Any

import msgspec

# In the order of their routers. A domain's package has a `domain` that says what it registers.
DOMAINS = (
    "app.web",
    "app.tenancy",
    "app.audit",
    "app.branches",
    "app.notes",
    "app.documents",
    "app.facts",
    "app.erasure",
    "app.graph",
    "app.objects",
    "app.embeddings",
    "app.recall",
    "app.cards",
    "app.extraction",
    "app.jobs",
    "app.maintenance",
    "app.users",
)


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """What a domain registers, as names of modules: importing its package must not import its routes."""

    routers: tuple[str, ...] = ()
    """Modules with a `router` of paths under /v1."""
    tables: tuple[str, ...] = ()
    """Modules that declare tables."""
    jobs: tuple[str, ...] = ()
    """Modules with `register_jobs(registry, context)`."""
    dependencies: tuple[str, ...] = ()
    """Modules with `provide(context)`, which builds what handlers are given."""


def all_domains() -> Iterator[Domain]:
    """Yield every domain."""
    for name in DOMAINS:
        yield importlib.import_module(name).domain


def modules_of(part: str) -> list[Any]:
    """Import the modules that the domains name under `routers`, `tables`, `jobs` or `dependencies`."""
    return [importlib.import_module(name) for domain in all_domains() for name in getattr(domain, part)]
