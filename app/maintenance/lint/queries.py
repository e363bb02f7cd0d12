"""All SQL of lint.

Every rule selects `id` and `related` (further ids), of ids after `after`. Rules run with the rights of the caller, so
that what is hidden counts as missing, and nothing tells of it.
"""

# Limit the statements of this transaction.
STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', %(milliseconds)s::text, true)"
# A rule: how many rows it finds, up to a limit, and the first of them.
RUN = """
    WITH found AS MATERIALIZED (SELECT r.id, r.related FROM ({rule}) r ORDER BY r.id LIMIT %(most)s)
    SELECT (SELECT count(*) FROM found) AS counted,
           ARRAY(SELECT f.id FROM found f ORDER BY f.id LIMIT %(page)s) AS ids,
           (SELECT coalesce(json_agg(f.related ORDER BY f.id), '[]')
            FROM (SELECT f.id, f.related FROM found f ORDER BY f.id LIMIT %(page)s) f) AS related"""

# Facts that their decay policy would have retracted, or that are older than its half-life; with the policy.
DECAYED_FACTS = """
    SELECT d.fact_id AS id, ARRAY[d.policy_id] AS related
    FROM find_decayed(%(tenant)s, %(project)s, now(), %(after)s::uuid) d
    WHERE d.act = 'retract' OR d.age >= d.half_life_s"""
# Current facts that were recorded and became true long ago, and were never confirmed.
UNCONFIRMED_FACTS = """
    SELECT f.fact_id AS id, '{}'::uuid[] AS related FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id > %(after)s::uuid
      AND f.retracted_at IS NULL AND f.valid_until > now() AND f.mentions = 1
      AND greatest(f.valid_from, f.created_at) < now() - make_interval(days => %(unconfirmed_days)s)"""
# Cards that are too old, or whose facts changed since; with the entity.
STALE_CARDS = """
    SELECT c.card_id AS id, ARRAY[c.entity_id] AS related FROM memory_cards c
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.card_id > %(after)s::uuid
      AND (c.built_at < now() - make_interval(secs => %(card_seconds)s)
           OR EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
                        AND f.subject_entity_id = c.entity_id AND f.scope = c.scope AND f.owner_key = c.owner_key
                        AND f.updated_at > c.built_at)
           OR EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
                        AND f.object_entity_id = c.entity_id AND f.scope = c.scope AND f.owner_key = c.owner_key
                        AND f.updated_at > c.built_at))"""
# Live notes that have waited long for their extraction.
PENDING_NOTES = """
    SELECT n.note_id AS id, '{}'::uuid[] AS related FROM memory_notes n
    WHERE n.tenant_id = %(tenant)s AND n.project_id = %(project)s AND n.note_id > %(after)s::uuid
      AND n.extraction_status = 'pending' AND n.deleted_at IS NULL
      AND n.updated_at < now() - make_interval(hours => %(pending_hours)s)"""

# Entities that no fact, live note or object refers to.
UNREFERENCED_ENTITIES = """
    SELECT e.entity_id AS id, '{}'::uuid[] AS related FROM graph_entities e
    WHERE e.tenant_id = %(tenant)s AND e.project_id = %(project)s AND e.entity_id > %(after)s::uuid
      AND e.merged_into IS NULL AND e.object_canonical_id IS NULL
      AND NOT EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
                        AND f.subject_entity_id = e.entity_id)
      AND NOT EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
                        AND f.object_entity_id = e.entity_id)
      AND NOT EXISTS (SELECT FROM note_entity_mentions m
                      JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = m.note_id
                          AND n.deleted_at IS NULL
                      WHERE m.tenant_id = %(tenant)s AND m.entity_id = e.entity_id)"""
# Current facts of which all evidence is deleted, with up to ten of those notes, and extracted facts without any. A note
# that the caller cannot see counts as live: it is evidence that is not shown.
UNSUPPORTED_FACTS = """
    SELECT f.fact_id AS id, ARRAY(
        SELECT n.note_id FROM graph_fact_evidence v
        JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = v.note_id
        WHERE v.tenant_id = %(tenant)s AND v.fact_id = f.fact_id ORDER BY n.note_id LIMIT 10) AS related
    FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id > %(after)s::uuid
      AND f.retracted_at IS NULL AND f.valid_until > now()
      AND (f.source = 'pipeline' OR EXISTS (
          SELECT FROM graph_fact_evidence v WHERE v.tenant_id = %(tenant)s AND v.fact_id = f.fact_id))
      AND NOT EXISTS (
          SELECT FROM graph_fact_evidence v
          LEFT JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = v.note_id
          WHERE v.tenant_id = %(tenant)s AND v.fact_id = f.fact_id AND n.deleted_at IS NULL)"""
# Vectors of notes, facts, cards and objects that are gone; the id is that of what is gone.
ORPHANED_VECTORS = """
    SELECT DISTINCT e.owner_id AS id, '{}'::uuid[] AS related FROM embeddings e
    WHERE e.tenant_id = %(tenant)s AND e.project_id = %(project)s AND e.owner_id > %(after)s::uuid
      AND CASE e.owner_kind
          WHEN 'note' THEN NOT EXISTS (
              SELECT FROM memory_notes n
              WHERE n.tenant_id = %(tenant)s AND n.note_id = e.owner_id AND n.deleted_at IS NULL)
          WHEN 'fact' THEN NOT EXISTS (
              SELECT FROM graph_facts f WHERE f.tenant_id = %(tenant)s AND f.fact_id = e.owner_id)
          WHEN 'card' THEN NOT EXISTS (
              SELECT FROM memory_cards c WHERE c.tenant_id = %(tenant)s AND c.card_id = e.owner_id)
          ELSE NOT EXISTS (
              SELECT FROM graph_objects o
              WHERE o.tenant_id = %(tenant)s AND o.canonical_id = e.owner_id AND o.deleted_at IS NULL) END"""
# Mentions of entities by notes that should have been purged by now, and by objects that are gone; with the entities.
ORPHANED_MENTIONS = """
    SELECT n.note_id AS id, array_agg(m.entity_id ORDER BY m.entity_id) AS related FROM memory_notes n
    JOIN note_entity_mentions m ON m.tenant_id = %(tenant)s AND m.note_id = n.note_id
    WHERE n.tenant_id = %(tenant)s AND n.project_id = %(project)s AND n.note_id > %(after)s::uuid
      AND n.deleted_at < now() - make_interval(days => %(deleted_days)s)
    GROUP BY n.note_id
    UNION ALL
    SELECT m.canonical_id, array_agg(m.entity_id ORDER BY m.entity_id) FROM object_entity_mentions m
    WHERE m.tenant_id = %(tenant)s AND m.project_id = %(project)s AND m.canonical_id > %(after)s::uuid
      AND NOT EXISTS (SELECT FROM graph_objects o
                      WHERE o.tenant_id = %(tenant)s AND o.canonical_id = m.canonical_id)
      AND NOT EXISTS (SELECT FROM graph_relationships r
                      WHERE r.tenant_id = %(tenant)s AND r.canonical_id = m.canonical_id)
    GROUP BY m.canonical_id"""

# Facts whose value is a ref without an entity: it is followed by no walk.
UNLINKED_REFS = """
    SELECT f.fact_id AS id, '{}'::uuid[] AS related FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id > %(after)s::uuid
      AND f.value_type = 'ref' AND f.object_entity_id IS NULL AND f.retracted_at IS NULL"""
# Facts derived from a hash that no fact has.
UNKNOWN_SOURCES = """
    SELECT DISTINCT f.fact_id AS id, '{}'::uuid[] AS related FROM fact_derivations d
    JOIN graph_facts f ON f.tenant_id = %(tenant)s AND f.fact_id = d.fact_id AND f.retracted_at IS NULL
    WHERE d.tenant_id = %(tenant)s AND d.project_id = %(project)s AND d.fact_id > %(after)s::uuid
      AND NOT EXISTS (SELECT FROM graph_facts s WHERE s.tenant_id = %(tenant)s AND s.fact_hash = d.source_hash)"""
# Entities that stand for an object that is gone; with the object.
UNBOUND_ENTITIES = """
    SELECT e.entity_id AS id, ARRAY[e.object_canonical_id] AS related FROM graph_entities e
    WHERE e.tenant_id = %(tenant)s AND e.project_id = %(project)s AND e.entity_id > %(after)s::uuid
      AND e.merged_into IS NULL AND e.object_canonical_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM graph_objects o
                      WHERE o.tenant_id = %(tenant)s AND o.canonical_id = e.object_canonical_id
                        AND o.deleted_at IS NULL)"""
# Live relationships from or to an object that is gone; with those ends.
LOOSE_RELATIONSHIPS = """
    SELECT r.canonical_id AS id, x.ends AS related FROM graph_relationships r
    CROSS JOIN LATERAL (
        SELECT array_agg(u.id) AS ends FROM unnest(ARRAY[r.src_id, r.dst_id]) u(id)
        WHERE NOT EXISTS (SELECT FROM graph_objects o
                          WHERE o.tenant_id = %(tenant)s AND o.canonical_id = u.id AND o.deleted_at IS NULL)) x
    WHERE r.tenant_id = %(tenant)s AND r.project_id = %(project)s AND r.canonical_id > %(after)s::uuid
      AND r.deleted_at IS NULL AND x.ends IS NOT NULL"""
# Live objects or relationships whose evidence has ids like ours (UUIDv7) that name nothing; with up to ten of them.
_LOOSE_EVIDENCE = """
    SELECT o.canonical_id AS id, x.ids AS related FROM {table} o
    CROSS JOIN LATERAL (
        SELECT (array_agg(DISTINCT u.id))[:10] AS ids FROM (
            SELECT lower(v.word #>> '{{}}')::uuid AS id FROM jsonb_path_query(
                o.evidence,
                'strict $.** ? (@.type() == "string" && @ like_regex "^[0-9a-f]{{8}}-[0-9a-f]{{4}}-'
                '7[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$" flag "i")')
                v(word)) u
        WHERE NOT EXISTS (SELECT FROM memory_notes n
                          WHERE n.tenant_id = %(tenant)s AND n.note_id = u.id AND n.deleted_at IS NULL)
          AND NOT EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = %(tenant)s AND f.fact_id = u.id)
          AND NOT EXISTS (SELECT FROM documents d WHERE d.tenant_id = %(tenant)s AND d.document_id = u.id)
          AND NOT EXISTS (SELECT FROM graph_entities e WHERE e.tenant_id = %(tenant)s AND e.entity_id = u.id)
          AND NOT EXISTS (SELECT FROM graph_object_versions v
                          WHERE v.tenant_id = %(tenant)s AND v.version_id = u.id)
          AND NOT EXISTS (SELECT FROM graph_relationship_versions v
                          WHERE v.tenant_id = %(tenant)s AND v.version_id = u.id)) x
    WHERE o.tenant_id = %(tenant)s AND o.project_id = %(project)s AND o.canonical_id > %(after)s::uuid
      AND o.deleted_at IS NULL AND o.evidence IS NOT NULL AND x.ids IS NOT NULL"""
LOOSE_OBJECT_EVIDENCE = _LOOSE_EVIDENCE.format(table="graph_objects")
LOOSE_RELATIONSHIP_EVIDENCE = _LOOSE_EVIDENCE.format(table="graph_relationships")

# Open conflicts between live facts; with both.
OPEN_CONFLICTS = """
    SELECT k.conflict_id AS id, ARRAY[k.fact_a, k.fact_b] AS related FROM fact_conflicts k
    JOIN graph_facts a ON a.tenant_id = %(tenant)s AND a.fact_id = k.fact_a AND a.retracted_at IS NULL
    JOIN graph_facts b ON b.tenant_id = %(tenant)s AND b.fact_id = k.fact_b AND b.retracted_at IS NULL
    WHERE k.tenant_id = %(tenant)s AND k.project_id = %(project)s AND k.conflict_id > %(after)s::uuid
      AND k.status = 'open'"""
# Current values of a single-valued predicate beside earlier ones of the same timeline; with those.
SEVERAL_VALUES = """
    SELECT f.fact_id AS id, x.others AS related FROM graph_facts f
    JOIN graph_predicates p ON p.tenant_id = %(tenant)s AND p.predicate_id = f.predicate_id
        AND p.status = 'active' AND p.cardinality = 'single'
    CROSS JOIN LATERAL (
        SELECT (array_agg(o.fact_id ORDER BY o.fact_id))[:10] AS others FROM graph_facts o
        WHERE o.tenant_id = %(tenant)s AND o.project_id = %(project)s AND o.subject_entity_id = f.subject_entity_id
          AND o.predicate_id = f.predicate_id AND o.scope = f.scope AND o.owner_key = f.owner_key
          AND o.fact_id < f.fact_id AND o.object_hash <> f.object_hash AND o.retracted_at IS NULL
          AND o.valid_from <= now() AND o.valid_until > now()) x
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.fact_id > %(after)s::uuid
      AND f.retracted_at IS NULL AND f.valid_from <= now() AND f.valid_until > now() AND x.others IS NOT NULL"""
# Pending predicates by which a subject has many open values; with up to ten such subjects.
UNDECIDED_PREDICATES = """
    SELECT p.predicate_id AS id, x.subjects AS related FROM graph_predicates p
    CROSS JOIN LATERAL (
        SELECT (array_agg(DISTINCT s.subject_entity_id))[:10] AS subjects FROM (
            SELECT f.subject_entity_id FROM graph_facts f
            WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.predicate_id = p.predicate_id
              AND f.valid_to IS NULL AND f.retracted_at IS NULL
            GROUP BY f.subject_entity_id, f.scope, f.owner_key
            HAVING count(DISTINCT f.object_hash) >= %(many_values)s) s) x
    WHERE p.tenant_id = %(tenant)s AND p.predicate_id > %(after)s::uuid AND p.status = 'pending'
      AND x.subjects IS NOT NULL"""


def run(rule: str) -> str:
    """Return the statement that runs a rule."""
    return RUN.replace("{rule}", rule)
