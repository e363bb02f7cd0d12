"""Example bodies of the API reference, one for each operation that takes a body; a test sends them all.

Ids below stand for ids of the reader's own; everything else can be sent as it is.
"""

from typing import Any

ENTITY_ID = "01977f3a-6b00-7c3d-9a51-0d5d3c2b1a02"
OBJECT_ID = "01977f3a-6b00-7c3d-9a51-0d5d3c2b1a03"
OTHER_OBJECT_ID = "01977f3a-6b00-7c3d-9a51-0d5d3c2b1a04"

_NOTE: dict[str, Any] = {
    "content": "I moved to Rome in May and work from home on Fridays.",
    "type": "profile",
    "author": "Alice",
    "occurred_at": "2026-05-04T09:30:00Z",
    "thread_id": "chat-118",
    "position": 0,
    "tags": ["onboarding"],
}
_FACT: dict[str, Any] = {
    "subject": {"canonical": "Alice", "kind": "person"},
    "predicate": "lives_in",
    "object": {"entity": {"canonical": "Rome", "kind": "city"}},
    "valid_from": "2026-05-01T00:00:00Z",
    "confidence": 0.9,
    "source": "chat",
}
_BATCH: dict[str, Any] = {
    "objects": [
        {"ref": "meeting", "type": "Meeting", "title": "Sprint 34"},
        {"ref": "decision", "type": "Decision", "properties": {"summary": "Adopt feature flags"}, "labels": ["core"]},
    ],
    "relationships": [{"type": "decides", "src_ref": "meeting", "dst_ref": "decision", "weight": 0.9}],
}

EXAMPLES: dict[str, Any] = {
    "POST /v1/notes": _NOTE,
    "POST /v1/notes/batch": {
        "notes": [
            {"content": "Where do you live now?", "author": "Tom", "thread_id": "chat-119", "position": 0},
            {"content": "In Rome, since May.", "author": "Alice", "thread_id": "chat-119", "position": 1},
        ]
    },
    "PATCH /v1/notes/{note_id}": {"content": "I moved to Rome in June.", "reason": "she corrected herself"},
    "POST /v1/notes/{note_id}/recover": {"reason": "deleted by mistake"},
    "POST /v1/notes/forget": {"filter": {"thread_id": "chat-119"}, "reason": "she asked", "dry_run": True},
    "POST /v1/recall": {"query": "Where does Alice live?", "user_id": "alice", "token_budget": 1500, "rendered": True},
    "POST /v1/context": {"user_id": "alice", "query": "Where does Alice live?", "token_budget": 1500},
    "POST /v1/facts": _FACT,
    "PUT /v1/facts": _FACT,
    "POST /v1/facts/batch": {
        "facts": [
            {"subject": "Alice", "predicate": "works_at", "object": {"entity": "Initech"}},
            {"subject": "Alice", "predicate": "age", "object": {"value": 34}},
        ]
    },
    "PATCH /v1/facts/{fact_id}": {"valid_to": "2027-01-01T00:00:00Z"},
    "POST /v1/facts/{fact_id}/retract": {"reason": "it was a joke"},
    "POST /v1/facts/retract": {"subject": "Alice", "predicate": "works_at", "reason": "imported twice"},
    "POST /v1/entities": {"canonical": "Alice Example", "kind": "person", "aliases": ["Alice E."]},
    "POST /v1/entities/{entity_id}/aliases": {"alias": "Ali"},
    "POST /v1/entities/{entity_id}/merge": {"from": ENTITY_ID},
    "PUT /v1/entities/{entity_id}/object": {"object_id": OBJECT_ID},
    "POST /v1/predicates": {"name": "lives_in", "cardinality": "single"},
    "PATCH /v1/predicates/{predicate_id}": {"status": "active", "cardinality": "single", "resolve": "latest"},
    "POST /v1/predicates/{predicate_id}/aliases": {"alias": "resides_in"},
    "POST /v1/documents": {
        "source_type": "markdown",
        "title": "Handbook",
        "content": "# Travel\n\nBook trains for journeys of less than four hours.",
        "tags": ["handbook"],
    },
    "POST /v1/conflicts/{conflict_id}/resolve": {"value": "blue", "note": "she confirmed it"},
    "POST /v1/decay/policies": {"relation": "mood", "mode": "confidence", "half_life_s": 604800},
    "POST /v1/decay/sweep": {"dry_run": True},
    "PUT /v1/sources": {"source": "crm", "identity": "manifest", "authority": "same_authority", "agents": ["robin"]},
    "POST /v1/tombstones": {"entity": "Alice", "reason": "she asked to be forgotten", "erase": True},
    "POST /v1/tombstones/{tombstone_id}/revoke": {"reason": "issued for the wrong person"},
    "POST /v1/gardens": {"slug": "kitchen", "name": "Kitchen", "scope": "project_shared"},
    "PATCH /v1/gardens/{garden_id}": {"name": "Kitchen and pantry"},
    "PUT /v1/gardens/{garden_id}/members/{agent}": {"role": "reader"},
    "POST /v1/graph/schemas/objects": {
        "type": "Decision",
        "json_schema": {
            "type": "object",
            "required": ["summary"],
            "properties": {"summary": {"type": "string"}, "owner": {"type": "string"}},
        },
    },
    "PATCH /v1/graph/schemas/objects/{name}": {"version": 1, "status": "active"},
    "POST /v1/graph/schemas/relationships": {
        "type": "decides",
        "allowed_src_types": ["Meeting"],
        "allowed_dst_types": ["Decision"],
        "multiplicity": {"dst": "one"},
    },
    "PATCH /v1/graph/schemas/relationships/{name}": {"version": 1, "status": "active"},
    "POST /v1/graph/objects": {
        "type": "Decision",
        "properties": {"summary": "Adopt feature flags"},
        "status": "proposed",
        "labels": ["core"],
    },
    "PATCH /v1/graph/objects/{object_id}": {"status": "accepted", "properties": {"owner": "core"}},
    "POST /v1/graph/batch": _BATCH,
    "POST /v1/graph/objects/batch": _BATCH,
    "POST /v1/graph/relationships": {"type": "decides", "src_id": OBJECT_ID, "dst_id": OTHER_OBJECT_ID, "weight": 0.9},
    "PATCH /v1/graph/relationships/{relationship_id}": {"weight": 0.5},
    "POST /v1/graph/expand": {
        "roots": [OBJECT_ID],
        "direction": "both",
        "max_depth": 2,
        "edge_types": ["decides"],
        "include": {"object": ["title", "properties.summary"], "edge": ["type"]},
    },
    "POST /v1/graph/traverse": {"root_ids": [OBJECT_ID], "max_depth": 3, "limit": 50},
    "POST /v1/lint": {"checks": ["stale", "contradictions"], "limit": 100},
    "POST /v1/reviews/{review_id}/approve": {"reason": "she confirmed it"},
    "POST /v1/reviews/{review_id}/reject": {"reason": "a misunderstanding"},
    "PUT /v1/projects/{project_id}/settings": {"enabled": True, "shadow_mode": True, "extraction_model": "qwen3:4b"},
    "POST /v1/admin/tenants": {"tenant_id": "acme", "name": "Acme"},
    "POST /v1/admin/projects": {"project_id": "web", "name": "Web shop"},
    "PATCH /v1/admin/projects/{project_id}": {"language": "german", "trace_days": 14},
    "POST /v1/admin/keys": {
        "kind": "agent",
        "agent_id": "wren",
        "project_id": "default",
        "scopes": ["notes:read", "facts:read"],
    },
    "POST /v1/admin/keys/{key_id}/rotate": {"grace_seconds": 3600},
    "POST /v1/admin/redactions": {"pattern": "CASE-[0-9]{6}"},
}
