"""Drafts: facts checked one by one and encoded for the database, with each name in them only once."""

from typing import Any
from uuid import UUID

import msgspec

from app.access import Principal, as_user, new_id
from app.db.database import Row
from app.errors import BadRequest
from app.facts.clock import HybridClock
from app.facts.names import as_id, entity_name, plain_text, predicate_name
from app.facts.schemas import EntityRef, FactCreate, ObjectIn
from app.facts.values import read_value
from app.inputs import as_utc
from app.retrieval.trust import UNKNOWN_TRUST
from app.tenancy.schemas import SYNONYMS

MAX_EVIDENCE = 10_000
_clock = HybridClock()


class Drafts:
    """A batch of checked facts; entities and predicates are listed once and referred to by number."""

    def __init__(self, who: Principal) -> None:
        self._who = who
        self.entities: list[Row] = []
        self.predicates: list[Row] = []
        self.facts: list[Row] = []
        self.evidence: list[Row] = []
        self.derived: list[Row] = []
        self.gardens: dict[tuple[UUID, str], list[int]] = {}
        self._known: dict[tuple[str, str, str], int] = {}

    def add(self, index: int, data: FactCreate) -> None:
        """Check one fact and add it; raise BadRequest and add nothing when it is invalid."""
        if data.user_id is not None and as_user(self._who, data.user_id).user_id != self._who.user_id:
            raise BadRequest(
                "user_id: all facts of a batch have one user; name them beside the facts.", code="user_mismatch"
            )
        subject = _one_of(data, "subject", "entity", "entity_uri")
        predicate = _one_of(data, "predicate", "relation")
        valid_to = _end(data)
        valid_from = None if data.valid_from is None else as_utc(data.valid_from, "valid_from")
        if valid_to is not None and valid_from is not None and valid_to <= valid_from:
            raise BadRequest("valid_to: must be later than valid_from.")
        scope = SYNONYMS.get(data.scope, data.scope)
        garden_id = None if data.garden_id is None else str(data.garden_id)
        row: Row = {
            "idx": index,
            "fact_id": new_id(),
            "scope": scope,
            "garden_id": garden_id,
            "confidence": data.confidence,
            "source": plain_text(data.source, "source"),
            "source_trust": UNKNOWN_TRUST,
            "hlc": _clock.stamp(),
            "valid_from": valid_from,
            "valid_to": valid_to,
            **_object(data.object),
        }
        first = {note_id: at for at, note_id in reversed(list(enumerate(data.evidence)))}
        if len(self.evidence) + len(first) > MAX_EVIDENCE:
            raise BadRequest(f"evidence: at most {MAX_EVIDENCE} notes in one batch; split it.", code="batch_too_large")
        about = entity_reference(subject, "subject")
        target = row.pop("entity", None)
        by = predicate_reference(predicate)
        row["s"] = self._reference("entity", self.entities, about)
        row["o"] = None if target is None else self._reference("entity", self.entities, target)
        row["p"] = self._reference("predicate", self.predicates, by)
        row["predicate"] = by.get("name") or predicate
        self.facts.append(row)
        self.evidence += [{"idx": index, "at": at, "note_id": note_id} for note_id, at in first.items()]
        self.derived += [{"idx": index, "hash": digest} for digest in data.derived_from]
        if data.garden_id is not None:
            self.gardens.setdefault((data.garden_id, scope), []).append(index)

    def _reference(self, kind: str, rows: list[Row], row: Row) -> int:
        key = (kind, row["norm"], "") if "norm" in row else (kind, "", row.get("entity_id") or row["predicate_id"])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(rows) + 1
            rows.append({**row, "ref": found})
        elif row.get("kind") and not rows[found - 1].get("kind"):
            rows[found - 1]["kind"] = row["kind"]
        return found

    @property
    def first_subject(self) -> str:
        """The normal form or the id of the first fact's subject."""
        subject = self.entities[int(self.facts[0]["s"]) - 1]
        return str(subject.get("norm") or subject["entity_id"])

    def drop(self, indexes: set[int]) -> None:
        """Remove the facts of these indexes."""
        self.facts = [row for row in self.facts if row["idx"] not in indexes]
        self.evidence = [row for row in self.evidence if row["idx"] not in indexes]
        self.derived = [row for row in self.derived if row["idx"] not in indexes]

    def arguments(self) -> dict[str, str]:
        """Return the batch as the JSON arguments of write_facts."""
        parts = {
            "entities": self.entities,
            "predicates": self.predicates,
            "facts": self.facts,
            "evidence": self.evidence,
            "derived": self.derived,
        }
        return {name: msgspec.json.encode(rows).decode() for name, rows in parts.items()}


def _one_of(data: FactCreate, *names: str) -> Any:
    given = [(name, value) for name in names if (value := getattr(data, name)) is not msgspec.UNSET]
    if len(given) != 1:
        known = " or ".join(names)
        raise BadRequest(f"{names[0]}: " + (f"give only one of {known}." if given else "required."))
    return given[0][1]


def _end(data: FactCreate) -> Any:
    given = [value for value in (data.valid_to, data.valid_until) if value is not msgspec.UNSET]
    if len(given) > 1:
        raise BadRequest("valid_to: give only one of valid_to or valid_until.")
    return None if not given or given[0] is None else as_utc(given[0], "valid_to")


def entity_reference(reference: str | EntityRef, field: str) -> Row:
    """Return a reference to an entity as the resolve functions take it."""
    if isinstance(reference, EntityRef):
        if (reference.canonical is None) == (reference.entity_id is None):
            raise BadRequest(f"{field}: give canonical or entity_id, and not both.")
        if reference.entity_id is not None:
            if reference.kind is not None:
                raise BadRequest(f"{field}.kind: cannot be set for an entity given by its id.")
            return {"entity_id": str(reference.entity_id)}
        text, kind = reference.canonical or "", plain_text(reference.kind, f"{field}.kind")
    else:
        text, kind = reference, None
        if (entity_id := as_id(text)) is not None:
            return {"entity_id": entity_id}
    name = entity_name(text, field)
    return {"norm": name.norm, "canonical": name.shown, "kind": kind, "new_id": new_id()}


def predicate_reference(text: str) -> Row:
    """Return a reference to a predicate as the resolve functions take it."""
    if (predicate_id := as_id(text)) is not None:
        return {"predicate_id": predicate_id}
    name = predicate_name(text, "predicate")
    return {"norm": name.norm, "name": name.shown, "new_id": new_id()}


def encode_reference(row: Row) -> str:
    """Encode one reference as the JSON list that the resolve functions take."""
    return msgspec.json.encode([{**row, "ref": 1}]).decode()


def _object(data: ObjectIn | str) -> Row:
    if isinstance(data, str):
        raise BadRequest(
            'object: must be {"entity": "..."} for something that can have facts of its own, '
            'or {"value": "..."} for plain text.'
        )
    given = data.value if data.v is msgspec.UNSET else data.v
    if data.v is not msgspec.UNSET and data.value is not msgspec.UNSET:
        raise BadRequest("object: give only one of value or v.")
    has_entity, has_value = data.entity is not msgspec.UNSET, given is not msgspec.UNSET
    if has_entity and (has_value or data.type is not msgspec.UNSET):
        raise BadRequest("object: give an entity or a value, not both.")
    if not has_entity and not has_value:
        raise BadRequest("object: give an entity or a value.")
    if data.entity is not msgspec.UNSET:
        return {"entity": entity_reference(data.entity, "object"), "value_type": "entity"}
    if data.type == "ref":
        # A ref names an entity, which is how recall shows one.
        if not isinstance(given, str):
            raise BadRequest("object.value: must be text for type ref: the name, URI or id of an entity.")
        return {"entity": entity_reference(given, "object"), "value_type": "entity"}
    value = read_value(given, None if data.type is msgspec.UNSET else data.type, "object")
    return {
        "value": value.text,
        "value_type": value.type,
        "value_json": value.json,
        "object_hash": f"\\x{value.hash}",
    }
