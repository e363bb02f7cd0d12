"""Walking the graph of facts: who is near an entity, over how many hops and which facts."""

from app.domains import Domain

domain = Domain(
    routers=("app.graph.routes",),
    tables=("app.graph.tables",),
)
