"""Objects: curated records with JSON Schema types and versions, linked by typed relationships."""

from app.domains import Domain

domain = Domain(
    routers=(
        "app.objects.entity_links.routes",
        "app.objects.types.routes",
        "app.objects.routes",
        "app.objects.traversal.routes",
    ),
    tables=(
        "app.objects.types.tables",
        "app.objects.tables",
    ),
    jobs=("app.objects.types.tasks",),
    dependencies=("app.objects.traversal.dependencies",),
)
