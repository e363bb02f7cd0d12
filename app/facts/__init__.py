"""Facts: what is believed, of which entities, by which predicates, with its evidence, true from and to."""

from app.domains import Domain

domain = Domain(
    routers=(
        "app.facts.routes",
        "app.facts.upkeep.routes",
    ),
    tables=(
        "app.facts.tables",
        "app.facts.upkeep.tables",
    ),
    jobs=("app.facts.tasks",),
)
