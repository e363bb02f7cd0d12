"""Look up the terms of a query, together with the project's settings of recall, in one read for each kind."""

import asyncio
import time
from datetime import datetime, timedelta

import msgspec

from app.db.database import Database
from app.facts.as_of import look_back
from app.recall import queries
from app.recall.request import CheckedRequest
from app.retrieval.channels import channel_limit
from app.retrieval.lexical import TermStatistics, WeightedTerms, weigh_terms
from app.tenancy.settings import PipelineSettings, read_settings

KINDS = {"note": "notes", "fact": "facts"}
# Facts are short and have no neighbours, so that more of them cost little.
FACTS_PER_NOTE = 2

_decode_terms = msgspec.json.Decoder(TermStatistics).decode


class ProjectRecallSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a project that recall depends on, and the time they were read at."""

    use_trust: bool
    """Whether the trust in sources counts."""
    pipeline: PipelineSettings
    server_time: datetime
    """The database's clock when the settings were read; history is recorded by that clock."""
    received_at: float
    """The monotonic clock of this process at that moment."""

    def now(self) -> datetime:
        """Return the database's time, at most the duration of the read too early."""
        return self.server_time + timedelta(seconds=time.monotonic() - self.received_at)


async def look_up_terms(
    db: Database, request: CheckedRequest
) -> tuple[dict[str, WeightedTerms], ProjectRecallSettings]:
    """Return the query's terms and the best units by them for each kind, and the project's settings."""
    options, context = request.options, request.context
    # When an entity selects the units, terms only score them.
    wanted = channel_limit(request.max_results) if request.entity is None else 0
    limits = {"note": wanted, "fact": FACTS_PER_NOTE * wanted}
    kinds = [kind for kind, name in KINDS.items() if name in request.include]
    params = {
        **context.parameters(),
        "query": request.query,
        "min_confidence": options.min_confidence,
        "min_trust": request.min_trust(use_trust=True),
        "min_trust_off": request.min_trust(use_trust=False),
        "contradicted": options.include_contradicted,
        # Predicates are only applied to candidates.
        "relations": None,
    }
    found = await asyncio.gather(
        *(
            look_back(db, context.who, queries.LOOK_UP_TERMS, {**params, "kind": kind, "limit": limits[kind]})
            for kind in kinds
        )
    )
    rows = [row for (row,) in found]
    settings = ProjectRecallSettings(
        use_trust=any(row["use_trust"] for row in rows),
        pipeline=read_settings({"pipeline": rows[0]["pipeline"] or {}}),
        server_time=max(row["server_time"] for row in rows),
        received_at=time.monotonic(),
    )
    return weigh_terms({kind: _decode_terms(row["found"]) for kind, row in zip(kinds, rows, strict=True)}), settings
