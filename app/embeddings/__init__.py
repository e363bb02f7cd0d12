"""Embeddings: registered models, vectors of notes, facts, cards and objects, redaction, and term statistics.

A unit is a note, a fact, a card or an object. It is queued in the transaction that changes it. The job `embed` of each
project and model processes the queue; `embed_reconcile` finds once a day what was missed. Term statistics are refreshed
by the same job, and by `recount` after something was hidden, restored or erased.
"""

from app.domains import Domain

domain = Domain(
    routers=("app.embeddings.routes",),
    tables=("app.embeddings.tables",),
    jobs=("app.embeddings.tasks",),
    dependencies=("app.embeddings.dependencies",),
)
