"""The audit log: who did what and when, with ids and never content, in a chain that shows tampering."""

from app.domains import Domain

domain = Domain(
    jobs=("app.audit.tasks",),
)
