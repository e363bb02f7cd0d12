"""The contents of candidates: facts, notes and vectors as the caller may read them."""

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import msgspec

from app.db.database import Database, Row
from app.facts import reads
from app.facts.as_of import HELD, look_back
from app.facts.schemas import FactRead
from app.read_context import shared_from
from app.recall import queries
from app.recall.rendering import value_text
from app.recall.request import CheckedRequest
from app.recall.schemas import RecalledNote
from app.retrieval.channels import Channels, format_ids
from app.retrieval.ranking import ScoredCandidate
from app.retrieval.vectors import Vector, stack_vectors


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of the candidates, by id; a candidate that is gone or hidden by now is in none of them."""

    facts: dict[str, FactRead]
    notes: dict[str, Row]
    texts: dict[str, str]
    vectors: dict[str, Vector]

    def stack_vectors(self, pool: list[ScoredCandidate]) -> Vector | None:
        """Return the vectors of these candidates as rows, zeros for one without a vector; None without any."""
        return stack_vectors(self.vectors, [one.id for one in pool])

    def present_note(self, one: ScoredCandidate) -> RecalledNote:
        """Return a note as a result."""
        return recalled_note(self.notes[one.id], score=one.score)

    def held_notes(self, ids: Iterable[UUID]) -> list[UUID]:
        """Return those of these that are notes under legal hold."""
        return [found for found in ids if (row := self.notes.get(str(found))) and is_held(row)]


def recalled_note(row: Row, *, score: float) -> RecalledNote:
    """Return a row of queries.NOTES as a result."""
    fields = {name: value for name, value in row.items() if name not in ("suppression", "other_project")}
    return RecalledNote(id=UUID(str(row["note_id"])), score=score, **fields, **shared_from(row))


def is_held(row: Row) -> bool:
    """Return whether a note is under legal hold."""
    return row["suppression"] == HELD


async def read_contents(
    db: Database, request: CheckedRequest, pool: list[ScoredCandidate], *, channels: Channels | None
) -> Contents:
    """Read the candidates at the time of the request; their vectors too where `channels` is given."""
    context = request.context
    facts = {UUID(one.id) for one in pool if one.kind == "fact"}
    notes = [one.id for one in pool if one.kind == "note"]
    read_facts, rows, vectors = await asyncio.gather(
        reads.read_facts(db, context.who, ids=facts, as_of=context.as_of),
        _read_notes(db, request, notes),
        _read_vectors(channels, pool),
    )
    found_facts = {str(fact): read for fact, read in read_facts.items()}
    found_notes = {str(row["note_id"]): row for row in rows}
    texts = {fact: value_text(read) for fact, read in found_facts.items()}
    texts |= {note: row["content"] for note, row in found_notes.items()}
    return Contents(facts=found_facts, notes=found_notes, texts=texts, vectors=vectors)


async def _read_notes(db: Database, request: CheckedRequest, ids: list[str]) -> list[Row]:
    if not ids:
        return []
    params: dict[str, Any] = {**request.context.parameters(), "ids": format_ids(ids)}
    return await look_back(db, request.context.who, queries.NOTES, params)


async def _read_vectors(channels: Channels | None, pool: list[ScoredCandidate]) -> dict[str, Vector]:
    return await channels.read_vectors([one.id for one in pool]) if channels is not None and pool else {}
