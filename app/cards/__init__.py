"""Memory cards: a summary of what is known about an entity in one scope and garden, rebuilt when its facts change."""

from app.domains import Domain

domain = Domain(
    routers=("app.cards.routes",),
    tables=("app.cards.tables",),
    jobs=("app.cards.tasks",),
    dependencies=("app.cards.dependencies",),
)
