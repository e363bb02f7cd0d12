"""Embedding: which models there are, what is embedded of notes, facts and cards, and how it survives its providers.

A unit is a note, a fact or a card. What is to be embedded is queued in the transaction that makes it necessary; the job
`embed` of each project and model works the queue off, `embed_reconcile` finds once a day what was missed. Words are
counted beside it, and anew (`recount`) when something is hidden, shown again or erased.
"""

from app.domains import Domain

domain = Domain(
    routers=("app.embeddings.routes",),
    tables=("app.embeddings.tables",),
    jobs=("app.embeddings.tasks",),
    dependencies=("app.embeddings.dependencies",),
)
