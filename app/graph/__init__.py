"""The graph of facts: edges between entities, and the neighbors of an entity with the paths to them."""

from app.domains import Domain

domain = Domain(
    routers=("app.graph.routes",),
    tables=("app.graph.tables",),
)
