"""The audit log: who did what and when, with ids and never content, in a hash chain that reveals tampering."""

from app.domains import Domain

domain = Domain(
    routers=("app.audit.routes",),
    tables=("app.audit.tables",),
    jobs=("app.audit.tasks",),
)
