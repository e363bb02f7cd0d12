"""History: what was taken back, what came from what, what was forgotten for good, and who did what."""

from app.domains import Domain

domain = Domain(
    routers=("app.erasure.routes",),
    tables=("app.erasure.tables",),
    jobs=("app.erasure.tasks",),
    dependencies=("app.erasure.dependencies",),
)
