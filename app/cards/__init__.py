"""Memory cards: what is known of an entity in one scope and garden, written up for reading and kept in step."""

from app.domains import Domain

domain = Domain(
    routers=("app.cards.routes",),
    tables=("app.cards.tables",),
    jobs=("app.cards.tasks",),
)
