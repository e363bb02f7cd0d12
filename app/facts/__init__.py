"""Facts: what is believed, about which entities, by which predicates, with its evidence and validity."""

from app.domains import Domain

domain = Domain(
    routers=(
        "app.facts.entities.routes",
        "app.facts.predicates.routes",
        "app.facts.routes",
        "app.facts.conflicts.routes",
        "app.facts.decay.routes",
        "app.facts.sources.routes",
    ),
    tables=(
        "app.facts.entities.tables",
        "app.facts.predicates.tables",
        "app.facts.tables",
        "app.facts.sources.tables",
        "app.facts.decay.tables",
    ),
    jobs=("app.facts.tasks",),
)
