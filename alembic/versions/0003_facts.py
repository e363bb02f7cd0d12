"""Facts: entities, predicates, temporal facts with their evidence, and the edges between entities."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE graph_entities (
    tenant_id TEXT NOT NULL,
    entity_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    canonical TEXT NOT NULL,
    canonical_norm TEXT COLLATE "C" NOT NULL,
    kind TEXT,
    merged_into UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_entities_pkey PRIMARY KEY (tenant_id, entity_id),
    CONSTRAINT graph_entities_name_key UNIQUE (tenant_id, project_id, canonical_norm),
    CONSTRAINT graph_entities_tenant_id_merged_into_fkey FOREIGN KEY(tenant_id, merged_into)
        REFERENCES graph_entities (tenant_id, entity_id),
    CONSTRAINT graph_entities_canonical_norm_check CHECK (canonical_norm <> '')
);
COMMENT ON COLUMN graph_entities.merged_into IS 'never a chain: a merge moves what points here';
CREATE INDEX graph_entities_merged_idx ON graph_entities (tenant_id, merged_into) WHERE merged_into IS NOT NULL;
CREATE TABLE graph_entity_aliases (
    tenant_id TEXT NOT NULL,
    alias_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    entity_id UUID NOT NULL,
    alias TEXT NOT NULL,
    alias_norm TEXT COLLATE "C" NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_entity_aliases_pkey PRIMARY KEY (tenant_id, alias_id),
    CONSTRAINT graph_entity_aliases_alias_key UNIQUE (tenant_id, entity_id, alias_norm),
    CONSTRAINT graph_entity_aliases_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX graph_entity_aliases_norm_idx ON graph_entity_aliases (tenant_id, project_id, alias_norm);
CREATE TABLE graph_predicates (
    tenant_id TEXT NOT NULL,
    predicate_id UUID NOT NULL,
    scope_key TEXT NOT NULL,
    project_id TEXT,
    canonical TEXT NOT NULL,
    canonical_norm TEXT COLLATE "C" NOT NULL,
    cardinality TEXT NOT NULL,
    status TEXT NOT NULL,
    global BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_predicates_pkey PRIMARY KEY (tenant_id, predicate_id),
    CONSTRAINT graph_predicates_name_key UNIQUE (tenant_id, scope_key, canonical_norm),
    CONSTRAINT graph_predicates_canonical_norm_check CHECK (canonical_norm <> ''),
    CONSTRAINT graph_predicates_cardinality_check CHECK (cardinality IN ('single', 'multi')),
    CONSTRAINT graph_predicates_status_check CHECK (status IN ('pending', 'active', 'deprecated')),
    CONSTRAINT graph_predicates_scope_key_check
        CHECK (scope_key = CASE WHEN global THEN '__global__' ELSE (tenant_id || ':' || COALESCE(project_id, '*'))
            END AND (project_id IS NULL OR NOT global))
);
COMMENT ON COLUMN graph_predicates.scope_key IS 'tenant:project, tenant:*, or __global__';
COMMENT ON COLUMN graph_predicates.project_id IS 'NULL: for every project of the tenant';
CREATE TABLE graph_predicate_aliases (
    tenant_id TEXT NOT NULL,
    alias_id UUID NOT NULL,
    scope_key TEXT NOT NULL,
    project_id TEXT,
    predicate_id UUID NOT NULL,
    alias TEXT NOT NULL,
    alias_norm TEXT COLLATE "C" NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_predicate_aliases_pkey PRIMARY KEY (tenant_id, alias_id),
    CONSTRAINT graph_predicate_aliases_alias_key UNIQUE (tenant_id, scope_key, alias_norm),
    CONSTRAINT graph_predicate_aliases_tenant_id_predicate_id_fkey FOREIGN KEY(tenant_id, predicate_id)
        REFERENCES graph_predicates (tenant_id, predicate_id) ON DELETE CASCADE,
    CONSTRAINT graph_predicate_aliases_scope_key_check
        CHECK (scope_key = (tenant_id || ':' || COALESCE(project_id, '*')))
);
CREATE INDEX graph_predicate_aliases_predicate_idx ON graph_predicate_aliases (tenant_id, predicate_id);
CREATE TABLE global_predicates (
    predicate_id UUID NOT NULL,
    canonical TEXT NOT NULL,
    canonical_norm TEXT COLLATE "C" NOT NULL,
    cardinality TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT global_predicates_pkey PRIMARY KEY (predicate_id),
    CONSTRAINT global_predicates_name_key UNIQUE (canonical_norm),
    CONSTRAINT global_predicates_cardinality_check CHECK (cardinality IN ('single', 'multi')),
    CONSTRAINT global_predicates_status_check CHECK (status IN ('pending', 'active', 'deprecated'))
);
CREATE TABLE global_predicate_aliases (
    alias_norm TEXT COLLATE "C" NOT NULL,
    alias TEXT NOT NULL,
    predicate_id UUID NOT NULL,
    CONSTRAINT global_predicate_aliases_pkey PRIMARY KEY (alias_norm),
    CONSTRAINT global_predicate_aliases_predicate_id_fkey FOREIGN KEY(predicate_id)
        REFERENCES global_predicates (predicate_id) ON DELETE CASCADE
);
CREATE TABLE graph_facts (
    tenant_id TEXT NOT NULL,
    fact_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    owner_key TEXT NOT NULL,
    subject_entity_id UUID NOT NULL,
    predicate TEXT NOT NULL,
    predicate_id UUID NOT NULL,
    object_entity_id UUID,
    object_value TEXT,
    object_hash BYTEA NOT NULL,
    value_type TEXT NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    source TEXT,
    source_trust DOUBLE PRECISION NOT NULL,
    fact_hash BYTEA NOT NULL,
    hlc TEXT NOT NULL,
    mentions INTEGER DEFAULT 1 NOT NULL,
    access_count INTEGER DEFAULT 0 NOT NULL,
    last_accessed_at TIMESTAMP WITH TIME ZONE,
    single_valued BOOLEAN NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    origin TEXT,
    valid_from TIMESTAMP WITH TIME ZONE NOT NULL,
    valid_to TIMESTAMP WITH TIME ZONE,
    valid_until TIMESTAMP WITH TIME ZONE
        GENERATED ALWAYS AS (COALESCE(valid_to, 'infinity'::timestamp with time zone)) STORED,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    retracted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT graph_facts_pkey PRIMARY KEY (tenant_id, fact_id),
    CONSTRAINT graph_facts_tenant_id_subject_entity_id_fkey FOREIGN KEY(tenant_id, subject_entity_id)
        REFERENCES graph_entities (tenant_id, entity_id),
    CONSTRAINT graph_facts_tenant_id_object_entity_id_fkey FOREIGN KEY(tenant_id, object_entity_id)
        REFERENCES graph_entities (tenant_id, entity_id),
    CONSTRAINT graph_facts_tenant_id_predicate_id_fkey FOREIGN KEY(tenant_id, predicate_id)
        REFERENCES graph_predicates (tenant_id, predicate_id),
    CONSTRAINT graph_facts_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT graph_facts_object_check CHECK ((object_entity_id IS NULL) <> (object_value IS NULL)),
    CONSTRAINT graph_facts_valid_to_check CHECK (valid_to IS NULL OR valid_to > valid_from),
    CONSTRAINT graph_facts_confidence_check CHECK (confidence >= 0 AND confidence <= 1),
    CONSTRAINT graph_facts_value_type_check
        CHECK (value_type IN ('entity', 'string', 'text', 'number', 'boolean', 'datetime', 'ref', 'null'))
);
COMMENT ON COLUMN graph_facts.owner_key IS 'the agent under agent_private, else the garden, else nothing';
COMMENT ON COLUMN graph_facts.predicate IS 'as the writer called it';
COMMENT ON COLUMN graph_facts.object_hash IS 'SHA-256 of type and value, or of the entity''s id';
COMMENT ON COLUMN graph_facts.origin IS 'the peer it came from';
COMMENT ON COLUMN graph_facts.closed_at IS 'when valid_to was last set';
CREATE INDEX graph_facts_belief_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, predicate_id, object_hash, valid_from);
CREATE INDEX graph_facts_list_idx ON graph_facts (tenant_id, project_id, created_at, fact_id);
CREATE INDEX graph_facts_object_idx ON graph_facts (tenant_id, project_id, object_entity_id, valid_until)
    WHERE object_entity_id IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_entity_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND object_entity_id IS NOT NULL;
CREATE INDEX graph_facts_open_idx ON graph_facts (tenant_id, project_id, created_at, fact_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL;
CREATE INDEX graph_facts_open_predicate_idx ON graph_facts (tenant_id, project_id, predicate_id, created_at, fact_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL;
CREATE UNIQUE INDEX graph_facts_open_single_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND single_valued;
CREATE UNIQUE INDEX graph_facts_open_value_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_hash)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND object_value IS NOT NULL;
CREATE INDEX graph_facts_predicate_idx ON graph_facts (tenant_id, project_id, predicate_id, valid_until, valid_from);
CREATE INDEX graph_facts_subject_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, valid_until, valid_from);
CREATE INDEX graph_facts_timeline_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, predicate_id, valid_from);
CREATE INDEX graph_facts_valid_idx ON graph_facts (tenant_id, project_id, valid_until) WHERE valid_to IS NOT NULL;
CREATE TABLE graph_fact_evidence (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    evidence_id UUID NOT NULL,
    fact_id UUID NOT NULL,
    note_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_fact_evidence_pkey PRIMARY KEY (tenant_id, evidence_id),
    CONSTRAINT graph_fact_evidence_note_key UNIQUE (tenant_id, fact_id, note_id),
    CONSTRAINT graph_fact_evidence_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_evidence_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE
);
CREATE INDEX graph_fact_evidence_note_idx ON graph_fact_evidence (tenant_id, note_id);
CREATE TABLE graph_fact_supersessions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    supersession_id UUID NOT NULL,
    from_fact_id UUID NOT NULL,
    to_fact_id UUID NOT NULL,
    note_id UUID,
    effective_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_fact_supersessions_pkey PRIMARY KEY (tenant_id, supersession_id),
    CONSTRAINT graph_fact_supersessions_tenant_id_from_fact_id_fkey FOREIGN KEY(tenant_id, from_fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_supersessions_tenant_id_to_fact_id_fkey FOREIGN KEY(tenant_id, to_fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_supersessions_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX graph_fact_supersessions_link_key
    ON graph_fact_supersessions (tenant_id, from_fact_id, to_fact_id, note_id)
    NULLS NOT DISTINCT;
CREATE INDEX graph_fact_supersessions_note_idx ON graph_fact_supersessions (tenant_id, note_id)
    WHERE note_id IS NOT NULL;
CREATE INDEX graph_fact_supersessions_to_idx ON graph_fact_supersessions (tenant_id, to_fact_id);
CREATE TABLE fact_closings (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    closing_id UUID NOT NULL,
    fact_id UUID NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    previous_valid_to TIMESTAMP WITH TIME ZONE,
    CONSTRAINT fact_closings_pkey PRIMARY KEY (tenant_id, closing_id),
    CONSTRAINT fact_closings_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX fact_closings_fact_idx ON fact_closings (tenant_id, fact_id, recorded_at);
CREATE TABLE fact_conflicts (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    conflict_id UUID NOT NULL,
    fact_a UUID NOT NULL,
    fact_b UUID NOT NULL,
    status TEXT DEFAULT 'open' NOT NULL,
    resolved_by TEXT,
    resolution_note TEXT,
    detected_at TIMESTAMP WITH TIME ZONE NOT NULL,
    resolved_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT fact_conflicts_pkey PRIMARY KEY (tenant_id, conflict_id),
    CONSTRAINT fact_conflicts_pair_key UNIQUE (tenant_id, fact_a, fact_b),
    CONSTRAINT fact_conflicts_tenant_id_fact_a_fkey FOREIGN KEY(tenant_id, fact_a)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_conflicts_tenant_id_fact_b_fkey FOREIGN KEY(tenant_id, fact_b)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_conflicts_status_check CHECK (status IN ('open', 'resolved'))
);
COMMENT ON COLUMN fact_conflicts.fact_a IS 'the one that was there';
COMMENT ON COLUMN fact_conflicts.fact_b IS 'the one that came to it';
CREATE INDEX fact_conflicts_other_idx ON fact_conflicts (tenant_id, fact_b);
CREATE TABLE fact_retractions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    retraction_id UUID NOT NULL,
    fact_id UUID NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT,
    retracted_by TEXT NOT NULL,
    confidence_before DOUBLE PRECISION NOT NULL,
    retracted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT fact_retractions_pkey PRIMARY KEY (tenant_id, retraction_id),
    CONSTRAINT fact_retractions_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_retractions_kind_check CHECK (kind IN ('retracted', 'corrected', 'merged', 'decayed'))
);
COMMENT ON COLUMN fact_retractions.agent_id IS 'the fact''s agent, so that its policy holds here too';
CREATE INDEX fact_retractions_fact_idx ON fact_retractions (tenant_id, fact_id);
CREATE TABLE fact_derivations (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    fact_id UUID NOT NULL,
    source_hash BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT fact_derivations_pkey PRIMARY KEY (tenant_id, fact_id, source_hash),
    CONSTRAINT fact_derivations_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX fact_derivations_source_idx ON fact_derivations (tenant_id, source_hash);
CREATE TABLE audit_log (
    tenant_id TEXT NOT NULL,
    event_id UUID NOT NULL,
    project_id TEXT,
    event_type TEXT NOT NULL,
    key_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    details JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, event_id)
);
CREATE INDEX audit_log_time_idx ON audit_log (tenant_id, created_at, event_id);
CREATE TABLE entity_edges (
    tenant_id TEXT NOT NULL,
    edge_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    owner_key TEXT NOT NULL,
    subject_entity_id UUID NOT NULL,
    predicate_id UUID NOT NULL,
    object_entity_id UUID NOT NULL,
    confidence DOUBLE PRECISION NOT NULL,
    source_trust DOUBLE PRECISION NOT NULL,
    valid_from TIMESTAMP WITH TIME ZONE NOT NULL,
    valid_to TIMESTAMP WITH TIME ZONE,
    valid_until TIMESTAMP WITH TIME ZONE
        GENERATED ALWAYS AS (COALESCE(valid_to, 'infinity'::timestamp with time zone)) STORED,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    retracted_at TIMESTAMP WITH TIME ZONE,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT entity_edges_pkey PRIMARY KEY (tenant_id, edge_id),
    CONSTRAINT entity_edges_tenant_id_edge_id_fkey FOREIGN KEY(tenant_id, edge_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE
);
COMMENT ON COLUMN entity_edges.edge_id IS 'the fact''s id';
CREATE INDEX entity_edges_in_idx ON entity_edges (tenant_id, project_id, object_entity_id, confidence, edge_id);
CREATE INDEX entity_edges_out_idx ON entity_edges (tenant_id, project_id, subject_entity_id, confidence, edge_id);
CREATE TABLE note_entity_mentions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    note_id UUID NOT NULL,
    entity_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT note_entity_mentions_pkey PRIMARY KEY (tenant_id, note_id, entity_id),
    CONSTRAINT note_entity_mentions_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT note_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX note_entity_mentions_entity_idx ON note_entity_mentions (tenant_id, entity_id, note_id);
"""

# What write_facts and place_facts hand to each other.
TYPES = """
CREATE TYPE fact_draft AS (
    idx int, fact_id uuid, s int, p int, o int, subject_id uuid, predicate_id uuid, object_id uuid, predicate text,
    value text, value_type text, value_json text, object_hash bytea, scope text, owner_key text, garden_id uuid,
    confidence double precision, source text, source_trust double precision, hlc text, valid_from timestamptz,
    valid_to timestamptz, timed boolean, created_at timestamptz, mode smallint, suppression smallint, turn int,
    note_id uuid, refused text, field text);
CREATE TYPE fact_step AS (
    idx int, fact_id uuid, is_new boolean, ends timestamptz, held_until timestamptz, other_id uuid,
    other_from timestamptz, next_id uuid, stretches boolean);
"""

# Only definer functions write most of these; the service itself reads.
RULES = {
    "graph_entities": (Rule.NAMES, "SELECT"),
    "graph_entity_aliases": (Rule.NAMES, "SELECT"),
    "graph_predicates": (Rule.VOCABULARY, "SELECT, INSERT"),
    "graph_predicate_aliases": (Rule.VOCABULARY, "SELECT, INSERT"),
    "graph_facts": (Rule.MEMORY, "SELECT"),
    "graph_fact_evidence": (Rule.REACH, "SELECT"),
    "graph_fact_supersessions": (Rule.REACH, "SELECT"),
    "fact_closings": (Rule.REACH, "SELECT"),
    "fact_conflicts": (Rule.REACH, "SELECT"),
    "fact_retractions": (Rule.MEMORY, "SELECT"),
    "fact_derivations": (Rule.REACH, "SELECT"),
    "audit_log": (Rule.TENANT, "SELECT"),
    "entity_edges": (Rule.MEMORY, "SELECT"),
    "note_entity_mentions": (Rule.REACH, "SELECT"),
}
REFERENCE_TABLES = ("global_predicates", "global_predicate_aliases")

FUNCTIONS = (
    r"""
-- A new UUIDv7 for rows whose number only the database knows; the application makes all others.
CREATE OR REPLACE FUNCTION make_id()
RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid()) PLACING
                substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6),
            52, 1), 53, 1), 'hex')::uuid
$$;""",
    r"""
-- The hash by which a fact is cited: SHA-256 over the RFC 8785 form of what it said when it was made.
-- to_json escapes a string as RFC 8785 does; a number's shortest form differs only in where the exponent begins.
CREATE OR REPLACE FUNCTION hash_fact(
    p_confidence double precision, p_entity text, p_relation text, p_scope text, p_source text, p_ts timestamptz,
    p_type text, p_value text)
RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT sha256(convert_to(
        '{"confidence":' || CASE
            WHEN p_confidence = 0 THEN '0'
            WHEN p_confidence < 1e-6 THEN replace(p_confidence::text, 'e-0', 'e-')
            ELSE p_confidence::text::numeric::text END
        || ',"entity":' || to_json(p_entity)::text
        || ',"relation":' || to_json(p_relation)::text
        || ',"scope":' || to_json(p_scope)::text
        || ',"source":' || coalesce(to_json(p_source)::text, 'null')
        || ',"ts":"' || to_char(p_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || '","value":{"type":"' || p_type || '","v":' || p_value || '}}', 'UTF8'))
$$;""",
    r"""
-- Which entities these names or ids mean: a canonical name beats an alias, a merged entity is what it became.
-- OFFSET 0 keeps each a lookup: a plan made while the tables were small would read them whole for ever after.
-- Runs with the rights of its caller: a reader finds what they may see, a definer function what there is.
CREATE OR REPLACE FUNCTION resolve_entities(p_tenant text, p_project text, p_names json)
RETURNS TABLE (ref int, entity_id uuid, state text, candidates uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT n.ref, x.found,
           CASE WHEN x.found IS NOT NULL THEN 'found'
                WHEN n.norm IS NULL THEN 'unknown'
                WHEN cardinality(a.ids) > 1 THEN 'ambiguous'
                ELSE 'absent' END,
           CASE WHEN x.found IS NULL AND cardinality(a.ids) > 1 THEN a.ids END
    FROM json_to_recordset(p_names) AS n(ref int, entity_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT coalesce(e.merged_into, e.entity_id) AS id
        FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = n.norm
        OFFSET 0
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(x.merged_into, x.entity_id) AS id
        FROM (SELECT e.merged_into, e.entity_id, e.project_id FROM graph_entities e
              WHERE n.norm IS NULL AND e.tenant_id = p_tenant AND e.entity_id = n.entity_id OFFSET 0) x
        WHERE x.project_id = p_project
    ) i ON true
    LEFT JOIN LATERAL (
        -- What is suppressed must not make a name ambiguous for those who cannot see it.
        SELECT coalesce(array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression = 0),
                        (array_agg(DISTINCT s.entity_id))[1:1]) AS ids
        FROM (
            SELECT a.entity_id, a.suppression FROM graph_entity_aliases a
            WHERE c.id IS NULL AND a.tenant_id = p_tenant AND a.project_id = p_project
              AND a.alias_norm BETWEEN n.norm AND n.norm
            ORDER BY a.alias_norm OFFSET 0
        ) s
    ) a ON true
    CROSS JOIN LATERAL (
        SELECT coalesce(c.id, i.id, CASE WHEN cardinality(a.ids) = 1 THEN a.ids[1] END) AS found
    ) x;
END
$$;""",
    r"""
-- Which predicates these names or ids mean, by precedence: the project's own, the tenant's, the installation's; in each
-- a canonical name beats an alias. `copy` says that the tenant has no copy of the installation's row yet.
CREATE OR REPLACE FUNCTION resolve_predicates(p_tenant text, p_project text, p_names json)
RETURNS TABLE (ref int, predicate_id uuid, canonical text, cardinality text, status text, copy boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_own text := p_tenant || ':' || p_project;
    v_shared text := p_tenant || ':*';
BEGIN
    RETURN QUERY
    SELECT n.ref, f.predicate_id, f.canonical, f.cardinality, f.status, coalesce(f.copy, false)
    FROM json_to_recordset(p_names) AS n(ref int, predicate_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT * FROM (
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false AS copy,
                   CASE p.scope_key WHEN v_own THEN 1 WHEN v_shared THEN 3 ELSE 5 END AS rank
            FROM graph_predicates p
            WHERE p.tenant_id = p_tenant AND p.scope_key IN (v_own, v_shared, '__global__')
              AND p.canonical_norm = n.norm
            UNION ALL
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false,
                   CASE a.scope_key WHEN v_own THEN 2 ELSE 4 END
            FROM graph_predicate_aliases a
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = a.predicate_id
            WHERE a.tenant_id = p_tenant AND a.scope_key IN (v_own, v_shared) AND a.alias_norm = n.norm
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status,
                   NOT EXISTS (SELECT FROM graph_predicates p
                               WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id), 6
            FROM global_predicates g
            WHERE g.canonical_norm = n.norm
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status,
                   NOT EXISTS (SELECT FROM graph_predicates p
                               WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id), 7
            FROM global_predicate_aliases a
            JOIN global_predicates g ON g.predicate_id = a.predicate_id
            WHERE a.alias_norm = n.norm
            UNION ALL
            SELECT p.predicate_id, p.canonical, p.cardinality, p.status, false, 0
            FROM graph_predicates p
            WHERE n.norm IS NULL AND p.tenant_id = p_tenant AND p.predicate_id = n.predicate_id
              AND (p.project_id IS NULL OR p.project_id = p_project)
            UNION ALL
            SELECT g.predicate_id, g.canonical, g.cardinality, g.status, true, 1
            FROM global_predicates g
            WHERE n.norm IS NULL AND g.predicate_id = n.predicate_id
              AND NOT EXISTS (SELECT FROM graph_predicates p
                              WHERE p.tenant_id = p_tenant AND p.predicate_id = g.predicate_id)
        ) found
        ORDER BY rank LIMIT 1
    ) f ON true;
END
$$;""",
    r"""
-- Makes those of the named entities that are wanted and not there, fills in a kind nobody knew, and answers the ids by
-- reference. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION make_entities(p_tenant text, p_project text, p_names json, p_known uuid[], p_wanted int[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_known uuid[] := p_known;
    v_now timestamptz := clock_timestamp();
BEGIN
    IF EXISTS (SELECT FROM unnest(p_wanted) w(ref) WHERE p_known[w.ref] IS NULL) THEN
        -- In the order of names, so that two writers of the same new names wait and do not block each other.
        INSERT INTO graph_entities (tenant_id, entity_id, project_id, canonical, canonical_norm, kind, created_at,
                                    updated_at)
        SELECT p_tenant, n.new_id, p_project, n.canonical, n.norm, n.kind, v_now, v_now
        FROM json_to_recordset(p_names) AS n(ref int, new_id uuid, norm text, canonical text, kind text)
        JOIN unnest(p_wanted) w(ref) ON w.ref = n.ref
        WHERE p_known[n.ref] IS NULL
        ORDER BY n.norm COLLATE "C"
        ON CONFLICT (tenant_id, project_id, canonical_norm) DO NOTHING;
        SELECT array_agg(coalesce(p_known[n.ref], e.merged_into, e.entity_id) ORDER BY n.ref) INTO v_known
        FROM json_to_recordset(p_names) AS n(ref int, norm text)
        LEFT JOIN LATERAL (
            SELECT e.merged_into, e.entity_id FROM graph_entities e
            WHERE p_known[n.ref] IS NULL AND e.tenant_id = p_tenant AND e.project_id = p_project
              AND e.canonical_norm = n.norm
            OFFSET 0
        ) e ON true;
    END IF;
    IF EXISTS (SELECT FROM json_to_recordset(p_names) AS n(kind text) WHERE n.kind IS NOT NULL) THEN
        UPDATE graph_entities e SET kind = n.kind, updated_at = v_now
        FROM json_to_recordset(p_names) AS n(ref int, kind text)
        JOIN unnest(p_wanted) w(ref) ON w.ref = n.ref
        WHERE n.kind IS NOT NULL AND e.tenant_id = p_tenant AND e.entity_id = v_known[n.ref] AND e.kind IS NULL
          AND e.entity_id = ANY (v_known);
    END IF;
    RETURN v_known;
END
$$;""",
    r"""
-- Makes those of the named predicates that are wanted and not there (pending and multi, until somebody decides), copies
-- rows of the installation at their first use, and answers the ids by reference. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION make_predicates(p_tenant text, p_project text, p_names json, p_wanted int[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_known uuid[];
    v_missing int;
    v_now timestamptz := clock_timestamp();
BEGIN
    SELECT array_agg(r.predicate_id ORDER BY r.ref),
           count(*) FILTER (WHERE r.ref = ANY (p_wanted) AND (r.predicate_id IS NULL OR r.copy))
    INTO v_known, v_missing
    FROM resolve_predicates(p_tenant, p_project, p_names) r;
    IF v_missing = 0 THEN
        RETURN v_known;
    END IF;
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, global, created_at, updated_at)
    SELECT p_tenant, g.predicate_id, '__global__', NULL, g.canonical, g.canonical_norm, g.cardinality, g.status, true,
           v_now, v_now
    FROM global_predicates g
    JOIN resolve_predicates(p_tenant, p_project, p_names) r ON r.predicate_id = g.predicate_id
    WHERE r.copy AND r.ref = ANY (p_wanted)
    ORDER BY g.canonical_norm
    FOR SHARE OF g
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_predicates (tenant_id, predicate_id, scope_key, project_id, canonical, canonical_norm,
                                  cardinality, status, created_at, updated_at)
    SELECT p_tenant, n.new_id, p_tenant || ':' || p_project, p_project, n.name, n.norm, 'multi', 'pending', v_now, v_now
    FROM json_to_recordset(p_names) AS n(ref int, new_id uuid, norm text, name text)
    WHERE n.ref = ANY (p_wanted) AND v_known[n.ref] IS NULL AND n.norm IS NOT NULL
    ORDER BY n.norm COLLATE "C"
    ON CONFLICT DO NOTHING;
    RETURN ARRAY(SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_names) r ORDER BY r.ref);
END
$$;""",
    r"""
-- Sets the ends of facts ('infinity': open again) and of their edges, and logs what each end was before.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION move_ends(
    p_tenant text, p_project text, p_facts uuid[], p_ends timestamptz[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
BEGIN
    -- One by one, each by its key: of a join with a list nobody can tell beforehand how it would be planned.
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        INSERT INTO fact_closings (tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to)
        VALUES (p_tenant, p_project, make_id(), p_facts[i], p_moments[i], v_fact.valid_to);
        UPDATE graph_facts f
        SET valid_to = nullif(p_ends[i], 'infinity'), closed_at = p_moments[i], updated_at = p_moments[i]
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        IF v_fact.object_entity_id IS NOT NULL THEN
            UPDATE entity_edges x SET valid_to = nullif(p_ends[i], 'infinity'), closed_at = p_moments[i]
            WHERE x.tenant_id = p_tenant AND x.edge_id = p_facts[i];
        END IF;
    END LOOP;
END
$$;""",
    r"""
-- Takes facts back: confidence 0 and the moment on fact and edge, and a record of what stood there.
-- What was in conflict with them no longer is. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION take_back(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_kind text, p_reason text,
    p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
    v_conflict uuid;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        INSERT INTO fact_retractions (
            tenant_id, project_id, retraction_id, fact_id, agent_id, scope, garden_id, suppression, kind, reason,
            retracted_by, confidence_before, retracted_at)
        VALUES (p_tenant, p_project, make_id(), p_facts[i], v_fact.agent_id, v_fact.scope, v_fact.garden_id,
                v_fact.suppression, p_kind, p_reason, p_agent, v_fact.confidence, p_moments[i]);
        UPDATE graph_facts f SET confidence = 0, retracted_at = p_moments[i], updated_at = p_moments[i]
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        IF v_fact.object_entity_id IS NOT NULL THEN
            UPDATE entity_edges x SET confidence = 0, retracted_at = p_moments[i]
            WHERE x.tenant_id = p_tenant AND x.edge_id = p_facts[i];
            CONTINUE;
        END IF;
        FOR v_conflict IN
            (SELECT c.conflict_id FROM fact_conflicts c
             WHERE c.tenant_id = p_tenant AND c.fact_a BETWEEN p_facts[i] AND p_facts[i] AND c.status = 'open'
             ORDER BY c.fact_a)
            UNION ALL
            (SELECT c.conflict_id FROM fact_conflicts c
             WHERE c.tenant_id = p_tenant AND c.fact_b BETWEEN p_facts[i] AND p_facts[i] AND c.status = 'open'
             ORDER BY c.fact_b)
        LOOP
            UPDATE fact_conflicts c
            SET status = 'resolved', resolved_by = p_agent, resolved_at = p_moments[i], resolution_note = p_kind
            WHERE c.tenant_id = p_tenant AND c.conflict_id = v_conflict;
        END LOOP;
    END LOOP;
END
$$;""",
    r"""
-- Records which other values in words these facts contradict: those of the same subject, predicate, scope and owner
-- whose times overlap, while the predicate is pending. At most 20 for each, the latest first.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION note_conflicts(p_tenant text, p_project text, p_facts uuid[], p_moments timestamptz[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
DECLARE
    v_fact graph_facts;
BEGIN
    FOR i IN 1 .. coalesce(cardinality(p_facts), 0) LOOP
        SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = p_facts[i];
        CONTINUE WHEN v_fact.object_value IS NULL OR v_fact.confidence = 0 OR v_fact.retracted_at IS NOT NULL
                   OR v_fact.suppression > 0;
        INSERT INTO fact_conflicts (tenant_id, project_id, conflict_id, fact_a, fact_b, detected_at)
        SELECT p_tenant, p_project, make_id(), x.fact_id, v_fact.fact_id, p_moments[i]
        FROM (
            SELECT g.fact_id FROM graph_facts g
            WHERE g.tenant_id = p_tenant AND g.project_id = p_project
              AND g.subject_entity_id = v_fact.subject_entity_id AND g.predicate_id = v_fact.predicate_id
              AND g.valid_from < v_fact.valid_until AND g.valid_until > v_fact.valid_from
              AND g.scope = v_fact.scope AND g.owner_key = v_fact.owner_key AND g.retracted_at IS NULL
              AND g.object_value IS NOT NULL AND g.object_hash <> v_fact.object_hash AND g.confidence > 0
              AND g.suppression = 0
            ORDER BY g.valid_from DESC LIMIT 20
        ) x
        WHERE (SELECT true FROM fact_conflicts c
               WHERE c.tenant_id = p_tenant AND c.fact_a = v_fact.fact_id AND c.fact_b = x.fact_id LIMIT 1) IS NULL
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;""",
    r"""
-- Puts drafts where they belong and answers what came of each. The writer holds the locks of their timelines.
-- A belief is (scope, owner, subject, predicate, object); its live facts never overlap. Asserted again, what is held
-- already is confirmed, and what is new of its time is added: before it as another fact, after it by moving its end.
-- Where the predicate is single and active (mode 2) all values share one timeline: the value before ends where the new
-- one starts, the new one ends where the next one starts, an equal start replaces. Where it is pending, a second value
-- in words (mode 1) is kept and the conflict recorded.
-- Each lookup asks for an order that only one index has, and sorting is off: which index is best cannot be told from
-- statistics while a table is young, and its plan outlives that.
-- Runs with the rights of its caller, who is write_facts.
CREATE OR REPLACE FUNCTION place_facts(
    p_tenant text, p_project text, p_agent text, p_drafts fact_draft[], p_values text[],
    p_jsons text[], p_evidence json, p_derived json)
RETURNS fact_step[]
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_turns int;
    v_turn fact_draft[];
    v_steps fact_step[];
    v_held uuid;
    v_confidence double precision;
    v_moment timestamptz;
    v_all fact_step[] := '{}';
BEGIN
    SELECT max(d.turn) INTO v_turns FROM unnest(p_drafts) d;
    FOR v_number IN 1 .. v_turns LOOP
        IF v_turns = 1 THEN
            v_turn := p_drafts;
        ELSE
            SELECT array_agg(d) INTO v_turn FROM unnest(p_drafts) d WHERE d.turn = v_number;
        END IF;

        -- What stands at the draft's place: the same belief, another value, the next one after it.
        SELECT array_agg(ROW(
            d.idx, coalesce(same.fact_id, d.fact_id), same.fact_id IS NULL,
            least(coalesce(d.valid_to, 'infinity'), next.valid_from), same.valid_until,
            other.fact_id, other.valid_from, next.fact_id,
            d.mode <> 2 AND d.timed AND next.valid_until < coalesce(d.valid_to, 'infinity'))::fact_step)
        INTO v_steps
        FROM unnest(v_turn) d
        LEFT JOIN LATERAL (
            SELECT x.fact_id, x.valid_until FROM (
                SELECT f.fact_id, f.valid_until FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = d.subject_id
                  AND f.predicate_id = d.predicate_id AND f.object_hash BETWEEN d.object_hash AND d.object_hash
                  AND f.valid_from <= d.valid_from
                  AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                ORDER BY f.object_hash DESC, f.valid_from DESC LIMIT 1
            ) x WHERE x.valid_until > d.valid_from
        ) same ON true
        LEFT JOIN LATERAL (
            SELECT x.* FROM (
                SELECT f.fact_id, f.valid_from, f.valid_to, f.valid_until, f.object_hash FROM graph_facts f
                WHERE d.mode = 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
                  AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
                  AND f.valid_from <= d.valid_from
                  AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                ORDER BY f.valid_from DESC LIMIT 1
            ) x WHERE x.valid_until > d.valid_from AND x.object_hash <> d.object_hash
        ) other ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode = 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
            ORDER BY f.valid_from LIMIT 1
        ) next_value ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode <> 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.object_hash BETWEEN d.object_hash AND d.object_hash AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
            ORDER BY f.object_hash, f.valid_from LIMIT 1
        ) next_same ON true
        CROSS JOIN LATERAL (
            SELECT coalesce(next_value.fact_id, next_same.fact_id) AS fact_id,
                   coalesce(next_value.valid_from, next_same.valid_from) AS valid_from,
                   coalesce(next_value.valid_until, next_same.valid_until) AS valid_until
        ) next;

        -- The value before: ended where the new one starts, or taken back where both start at once.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE w.other_id IS NOT NULL) THEN
            PERFORM move_ends(p_tenant, p_project, array_agg(w.other_id), array_agg(d.valid_from),
                              array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE w.other_from < d.valid_from;
            PERFORM take_back(p_tenant, p_project, p_agent, array_agg(w.other_id), 'corrected', NULL,
                              array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE w.other_from = d.valid_from;
        END IF;

        INSERT INTO graph_facts (
            tenant_id, fact_id, project_id, agent_id, scope, garden_id, owner_key, subject_entity_id, predicate,
            predicate_id, object_entity_id, object_value, object_hash, value_type, confidence, source, source_trust,
            fact_hash, hlc, single_valued, suppression, valid_from, valid_to, created_at, updated_at, closed_at)
        SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id, d.predicate,
               d.predicate_id, d.object_id, p_values[d.s], d.object_hash, d.value_type, d.confidence, d.source,
               d.source_trust,
               hash_fact(d.confidence, s.canonical_norm, p.canonical, d.scope, d.source, d.valid_from,
                         CASE WHEN d.object_id IS NULL THEN d.value_type ELSE 'ref' END,
                         CASE WHEN d.object_id IS NULL THEN p_jsons[d.s] ELSE to_json(o.canonical_norm)::text END),
               d.hlc, d.mode = 2, d.suppression, d.valid_from, nullif(w.ends, 'infinity'), d.created_at, d.created_at,
               CASE WHEN w.ends < 'infinity' THEN d.created_at END
        FROM unnest(v_steps) w
        JOIN unnest(v_turn) d ON d.idx = w.idx
        CROSS JOIN LATERAL (
            SELECT e.canonical_norm FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = d.subject_id OFFSET 0
        ) s
        CROSS JOIN LATERAL (
            SELECT p.canonical FROM graph_predicates p
            WHERE p.tenant_id = p_tenant AND p.predicate_id = d.predicate_id OFFSET 0
        ) p
        LEFT JOIN LATERAL (
            SELECT e.canonical_norm FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = d.object_id OFFSET 0
        ) o ON true
        WHERE w.is_new;

        INSERT INTO entity_edges (
            tenant_id, edge_id, project_id, agent_id, scope, garden_id, owner_key, subject_entity_id, predicate_id,
            object_entity_id, confidence, source_trust, valid_from, valid_to, created_at, closed_at, suppression)
        SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id,
               d.predicate_id, d.object_id, d.confidence, d.source_trust, d.valid_from, nullif(w.ends, 'infinity'),
               d.created_at, CASE WHEN w.ends < 'infinity' THEN d.created_at END, d.suppression
        FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
        WHERE w.is_new AND d.object_id IS NOT NULL;

        -- The chain of a timeline: from what was there to the new one, from the new one to what comes next.
        INSERT INTO graph_fact_supersessions (
            tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
        SELECT p_tenant, p_project, make_id(), x.older, x.newer, d.note_id, x.at, d.created_at
        FROM unnest(v_steps) w
        JOIN unnest(v_turn) d ON d.idx = w.idx
        CROSS JOIN LATERAL (
            VALUES (w.other_id, w.fact_id, d.valid_from),
                   (w.fact_id, CASE WHEN d.mode = 2 AND w.ends IS DISTINCT FROM d.valid_to THEN w.next_id END, w.ends)
        ) x(older, newer, at)
        WHERE w.is_new AND x.older IS NOT NULL AND x.newer IS NOT NULL
        ON CONFLICT DO NOTHING;

        -- Said again: one more mention, the running mean of confidence, and perhaps a later end.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE NOT w.is_new) THEN
            FOR v_held, v_confidence, v_moment IN
                SELECT w.fact_id, d.confidence, d.created_at
                FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx WHERE NOT w.is_new
            LOOP
                UPDATE graph_facts f
                SET mentions = f.mentions + 1, updated_at = v_moment,
                    confidence = least(1, (f.confidence * f.mentions + v_confidence) / (f.mentions + 1))
                WHERE f.tenant_id = p_tenant AND f.fact_id = v_held AND f.retracted_at IS NULL
                RETURNING f.confidence INTO v_confidence;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'a fact was taken back while it was confirmed' USING ERRCODE = '40001';
                END IF;
                UPDATE entity_edges x SET confidence = v_confidence
                WHERE x.tenant_id = p_tenant AND x.edge_id = v_held;
            END LOOP;
            PERFORM move_ends(p_tenant, p_project, array_agg(w.fact_id), array_agg(w.ends), array_agg(d.created_at))
            FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
            WHERE NOT w.is_new AND d.timed AND w.ends > w.held_until;
        END IF;
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE w.stretches) THEN
            -- The draft reaches over later facts of its belief: each of those lasts until the one after it.
            PERFORM move_ends(p_tenant, p_project, array_agg(x.fact_id), array_agg(x.ends), array_agg(x.at)),
                    note_conflicts(p_tenant, p_project, array_agg(x.fact_id) FILTER (WHERE x.mode = 1),
                                   array_agg(x.at) FILTER (WHERE x.mode = 1))
            FROM (
                SELECT f.fact_id, f.valid_until, d.mode, d.created_at AS at,
                       least(coalesce(d.valid_to, 'infinity'),
                             lead(f.valid_from) OVER (PARTITION BY d.idx ORDER BY f.valid_from)) AS ends
                FROM unnest(v_steps) w
                JOIN unnest(v_turn) d ON d.idx = w.idx
                CROSS JOIN LATERAL (
                    SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
                    WHERE f.tenant_id = p_tenant AND f.project_id = p_project
                      AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
                      AND f.object_hash = d.object_hash AND f.scope = d.scope AND f.owner_key = d.owner_key
                      AND f.retracted_at IS NULL AND f.valid_from > d.valid_from
                    OFFSET 0
                ) f
                WHERE w.stretches
            ) x WHERE x.ends > x.valid_until;
        END IF;

        PERFORM note_conflicts(p_tenant, p_project, array_agg(w.fact_id), array_agg(d.created_at))
        FROM unnest(v_steps) w JOIN unnest(v_turn) d ON d.idx = w.idx
        WHERE d.mode = 1;
        v_all := v_all || v_steps;
    END LOOP;

    IF json_array_length(p_evidence) > 0 THEN
        INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at)
        SELECT p_tenant, p_project, make_id(), w.fact_id, v.note_id, min(d.created_at)
        FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
        JOIN unnest(v_all) w ON w.idx = v.idx
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        GROUP BY w.fact_id, v.note_id
        ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
        INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
        SELECT DISTINCT ON (v.note_id, x.entity_id) p_tenant, p_project, v.note_id, x.entity_id, d.created_at
        FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        CROSS JOIN LATERAL (VALUES (d.subject_id), (d.object_id)) x(entity_id)
        WHERE x.entity_id IS NOT NULL
        ORDER BY v.note_id, x.entity_id
        ON CONFLICT DO NOTHING;
    END IF;
    IF json_array_length(p_derived) > 0 THEN
        -- What a fact came from is fixed when it is made.
        INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, created_at)
        SELECT DISTINCT p_tenant, p_project, w.fact_id, decode(v.hash, 'hex'), d.created_at
        FROM json_to_recordset(p_derived) AS v(idx int, hash text)
        JOIN unnest(v_all) w ON w.idx = v.idx AND w.is_new
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_all;
END
$$;""",
    r"""
-- Writes facts, one or a thousand, in one call: resolves or makes the entities and predicates they name, and puts each
-- where it belongs. Answers a row for each, in order. When one is refused and p_atomic, nothing is written.
-- Of the owner, because what a policy hides still counts here; the scope comes from the settings and from nowhere else.
-- OFFSET 0 keeps a join a lookup: a plan made while the tables were small would read them whole for ever after.
-- Locks, in this order: new names and kinds, predicates (against a change of cardinality), subjects by id, objects.
CREATE OR REPLACE FUNCTION write_facts(
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_entities uuid[];
    v_states text[];
    v_ambiguous jsonb;
    v_predicates uuid[];
    v_drafts fact_draft[];
    v_good fact_draft[];
    v_placed fact_draft[];
    -- Apart from the drafts, which are gone through again for every turn.
    v_values text[];
    v_jsons text[];
    v_steps fact_step[] := '{}';
    v_now timestamptz := clock_timestamp();
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'write_facts needs a scope with tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;

    -- 1. What is meant, and what is refused, before anything is made.
    SELECT array_agg(r.entity_id ORDER BY r.ref), array_agg(r.state ORDER BY r.ref),
           jsonb_object_agg(r.ref, r.candidates) FILTER (WHERE r.state = 'ambiguous')
    INTO v_entities, v_states, v_ambiguous
    FROM resolve_entities(v_tenant, v_project, p_entities) r;

    WITH predicate AS (
        SELECT n.ref, r.predicate_id, r.status, n.norm
        FROM json_to_recordset(p_predicates) AS n(ref int, norm text)
        JOIN resolve_predicates(v_tenant, v_project, p_predicates) r ON r.ref = n.ref
    ), cited AS (
        SELECT v.idx, (array_agg(v.note_id ORDER BY v.at))[1] AS first_note,
               min(v.at) FILTER (WHERE n.note_id IS NULL) AS missing
        FROM json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
        LEFT JOIN LATERAL (
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.note_id = v.note_id AND n.project_id = v_project
              AND n.deleted_at IS NULL AND n.suppression = 0
              AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
              AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
            OFFSET 0
        ) n ON true
        GROUP BY v.idx
    )
    SELECT array_agg(ROW(
        d.idx, d.fact_id, d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
        d.object_hash, d.scope, o.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc, d.valid_from,
        d.valid_to, d.valid_from IS NOT NULL OR d.valid_to IS NOT NULL, NULL, NULL, NULL, NULL, c.first_note,
        f.refused, CASE f.refused
            WHEN 'predicate_not_found' THEN 'predicate'
            WHEN 'predicate_deprecated' THEN 'predicate'
            WHEN 'note_not_found' THEN 'evidence[' || c.missing || ']'
            WHEN 'garden_forbidden' THEN 'garden_id'
            WHEN 'agent_required' THEN 'scope'
            WHEN 'valid_to_too_early' THEN 'valid_to'
            ELSE CASE WHEN v_states[d.s] IN ('unknown', 'ambiguous') THEN 'subject' ELSE 'object' END
        END)::fact_draft ORDER BY d.idx)
    INTO v_drafts
    FROM json_populate_recordset(NULL::fact_draft, p_facts) d
    JOIN predicate r ON r.ref = d.p
    LEFT JOIN cited c ON c.idx = d.idx
    -- Whose belief it is follows from the scope alone, whatever the caller says.
    CROSS JOIN LATERAL (
        SELECT concat_ws(' ', CASE d.scope WHEN 'agent_private' THEN v_agent END, d.garden_id) AS owner_key
    ) o
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN d.scope = 'agent_private' AND v_agent = '' THEN 'agent_required'
            WHEN v_states[d.s] = 'unknown' THEN 'entity_not_found'
            WHEN v_states[d.s] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN v_states[d.o] = 'unknown' THEN 'entity_not_found'
            WHEN v_states[d.o] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN r.predicate_id IS NULL AND r.norm IS NULL THEN 'predicate_not_found'
            WHEN r.status = 'deprecated' THEN 'predicate_deprecated'
            WHEN c.missing IS NOT NULL THEN 'note_not_found'
            WHEN d.valid_from IS NULL AND d.valid_to <= v_now THEN 'valid_to_too_early'
            WHEN d.garden_id IS NOT NULL AND d.garden_id <> ALL (v_gardens) THEN 'garden_forbidden'
        END AS refused
    ) f;
    SELECT array_agg(d ORDER BY d.idx) INTO v_good FROM unnest(v_drafts) d WHERE d.refused IS NULL;

    IF cardinality(v_good) > 0 AND NOT (p_atomic AND cardinality(v_good) < cardinality(v_drafts)) THEN
        -- 2. Names that are new.
        v_entities := make_entities(v_tenant, v_project, p_entities, v_entities,
            ARRAY(SELECT d.s FROM unnest(v_good) d UNION SELECT d.o FROM unnest(v_good) d WHERE d.o IS NOT NULL));
        v_predicates := make_predicates(v_tenant, v_project, p_predicates,
            ARRAY(SELECT DISTINCT d.p FROM unnest(v_good) d));

        -- 3. Locks: a predicate whose cardinality is about to change, an entity about to be merged, is waited for.
        PERFORM FROM (SELECT DISTINCT u.id FROM unnest(v_predicates) u(id) ORDER BY u.id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_predicates p WHERE p.tenant_id = v_tenant AND p.predicate_id = u.id FOR KEY SHARE) p;
        PERFORM FROM (SELECT DISTINCT v_entities[d.s] AS id FROM unnest(v_good) d ORDER BY id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = u.id FOR NO KEY UPDATE) e;
        PERFORM FROM (SELECT DISTINCT v_entities[d.o] AS id FROM unnest(v_good) d WHERE d.o IS NOT NULL ORDER BY id) u
        CROSS JOIN LATERAL (
            SELECT FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = u.id FOR KEY SHARE) e;

        -- 4. One clock for all that follows, read when nobody else can write these timelines. Each draft is a
        -- microsecond later than the one before it, so that two in one batch are as two in a row. Those of one
        -- timeline, or of one belief where values stand side by side, take turns; the others go together.
        v_now := clock_timestamp();
        SELECT array_agg(ROW(
            t.idx, t.fact_id, t.place, NULL, NULL, t.subject_now, t.predicate_now, t.object_now, t.predicate, NULL,
            t.value_type, NULL, t.hash_now, t.scope, t.owner_key, t.garden_id, t.confidence, t.source,
            t.source_trust, t.hlc, coalesce(t.valid_from, t.moment), t.valid_to, t.timed, t.moment, t.mode_now,
            t.hidden, t.turn_now, t.note_id, NULL, NULL)::fact_draft ORDER BY t.idx),
            array_agg(t.value ORDER BY t.idx), array_agg(t.value_json ORDER BY t.idx)
        INTO v_placed, v_values, v_jsons
        FROM (
          SELECT u.*, row_number() OVER (ORDER BY u.idx) AS place,
                 row_number() OVER (PARTITION BY u.scope, u.owner_key, u.subject_now, u.predicate_now,
                                    CASE WHEN u.mode_now = 0 THEN u.hash_now END ORDER BY u.idx) AS turn_now
          FROM (
            SELECT d.*, v_entities[d.s] AS subject_now, v_entities[d.o] AS object_now, p.predicate_id AS predicate_now,
                   coalesce(d.object_hash, sha256(uuid_send(v_entities[d.o]))) AS hash_now,
                   v_now + (d.idx - v_good[1].idx) * interval '1 microsecond' AS moment,
                   CASE WHEN p.status = 'active' AND p.cardinality = 'single' THEN 2
                        WHEN p.status = 'pending' AND d.o IS NULL THEN 1 ELSE 0 END AS mode_now,
                   greatest(s.suppression, o.suppression) AS hidden
            FROM unnest(v_good) d
            CROSS JOIN LATERAL (
                SELECT p.predicate_id, p.status, p.cardinality FROM graph_predicates p
                WHERE p.tenant_id = v_tenant AND p.predicate_id = v_predicates[d.p] AND p.status <> 'deprecated'
                OFFSET 0
            ) p
            CROSS JOIN LATERAL (
                SELECT s.suppression FROM graph_entities s
                WHERE s.tenant_id = v_tenant AND s.entity_id = v_entities[d.s] AND s.merged_into IS NULL
                OFFSET 0
            ) s
            LEFT JOIN LATERAL (
                SELECT o.suppression, o.merged_into FROM graph_entities o
                WHERE o.tenant_id = v_tenant AND o.entity_id = v_entities[d.o]
                OFFSET 0
            ) o ON true
            WHERE o.merged_into IS NULL AND (
                d.valid_to IS NULL OR d.valid_from IS NOT NULL
                OR d.valid_to > v_now + (d.idx - v_good[1].idx) * interval '1 microsecond')
          ) u
        ) t;
        IF cardinality(v_placed) IS DISTINCT FROM cardinality(v_good) THEN
            RAISE EXCEPTION 'a name changed its meaning while this was being written' USING ERRCODE = '40001';
        END IF;
        v_steps := place_facts(v_tenant, v_project, v_agent, v_placed, v_values, v_jsons, p_evidence, p_derived);
    END IF;

    -- 5. What came of each, shown to its writer whatever a policy hides from others.
    RETURN QUERY
    SELECT d.idx, d.refused, CASE WHEN d.refused IS NOT NULL THEN d.field END,
           CASE WHEN d.refused = 'entity_ambiguous' THEN ARRAY(
               SELECT jsonb_array_elements_text(
                   v_ambiguous -> (CASE d.field WHEN 'subject' THEN d.s ELSE d.o END)::text))::uuid[] END,
           CASE WHEN f.fact_id = d.fact_id THEN 'created' WHEN f.fact_id IS NOT NULL THEN 'reused' END,
           -- Of what is suppressed no trace.
           ARRAY(SELECT x.from_fact_id FROM graph_fact_supersessions x
                 WHERE x.tenant_id = v_tenant AND x.to_fact_id = d.fact_id AND x.created_at = f.created_at
                   AND (SELECT g.suppression FROM graph_facts g
                        WHERE g.tenant_id = v_tenant AND g.fact_id = x.from_fact_id) = 0
                 ORDER BY x.supersession_id),
           ARRAY(SELECT x.conflict_id FROM fact_conflicts x
                 WHERE x.tenant_id = v_tenant AND x.fact_b = f.fact_id AND x.detected_at >= v_now
                 ORDER BY x.conflict_id),
           f.fact_id, s.entity_id, s.canonical, s.kind, p.predicate_id, p.canonical, p.status, p.cardinality,
           o.entity_id, o.canonical, o.kind, f.object_value, f.value_type, f.scope, f.garden_id, f.agent_id, f.source,
           f.source_trust, f.confidence, f.valid_from, f.valid_to, f.created_at, f.closed_at, f.retracted_at,
           coalesce(
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_a = f.fact_id AND x.status = 'open' LIMIT 1),
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_b = f.fact_id AND x.status = 'open' LIMIT 1),
               false),
           ARRAY(SELECT x.note_id FROM graph_fact_evidence x
                 WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id ORDER BY x.created_at, x.evidence_id),
           ARRAY(SELECT encode(x.source_hash, 'hex') FROM fact_derivations x
                 WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id ORDER BY x.source_hash),
           encode(f.fact_hash, 'hex'), f.mentions
    FROM unnest(v_drafts) d
    LEFT JOIN unnest(v_steps) w ON w.idx = d.idx
    LEFT JOIN LATERAL (
        -- An order that only the primary key has; see place_facts.
        SELECT f.* FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id BETWEEN w.fact_id AND w.fact_id
        ORDER BY f.fact_id LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT e.* FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = f.subject_entity_id OFFSET 0
    ) s ON true
    LEFT JOIN LATERAL (
        SELECT e.* FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = f.object_entity_id OFFSET 0
    ) o ON true
    LEFT JOIN LATERAL (
        SELECT p.* FROM graph_predicates p WHERE p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id OFFSET 0
    ) p ON true
    ORDER BY d.idx;
END
$$;""",
    r"""
-- Hot path: sets the scope and writes facts, in one call.
CREATE OR REPLACE FUNCTION put_facts(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text,
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach);
    RETURN QUERY SELECT * FROM write_facts(p_entities, p_predicates, p_facts, p_evidence, p_derived, p_atomic);
END
$$;""",
    r"""
-- Takes back facts the caller can see: those named by id, or all under a subject, a predicate and a scope.
-- In a garden only its writers may (p_admin: the caller is an administrator, who is one everywhere).
CREATE OR REPLACE FUNCTION retract_facts(
    p_facts uuid[], p_subject uuid, p_predicate uuid, p_scope text, p_reason text, p_admin boolean)
RETURNS TABLE (fact_id uuid, refused text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_facts uuid[];
    v_refused uuid[];
    v_subjects uuid[];
    v_now timestamptz;
BEGIN
    SELECT array_agg(f.fact_id) FILTER (WHERE g.writes), array_agg(f.fact_id) FILTER (WHERE NOT g.writes)
    INTO v_facts, v_refused
    FROM graph_facts f
    CROSS JOIN LATERAL (
        SELECT f.garden_id IS NULL OR p_admin OR EXISTS (
            SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = f.garden_id
              AND m.agent_id = v_agent AND m.role IN ('admin', 'writer')) AS writes
    ) g
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (p_facts IS NULL OR f.fact_id = ANY (p_facts))
      AND (p_facts IS NOT NULL OR (f.subject_entity_id = p_subject AND f.predicate_id = p_predicate
                                   AND f.scope = p_scope AND f.retracted_at IS NULL))
      AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
      AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id IN (
        SELECT f.predicate_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts))
    ORDER BY p.predicate_id FOR KEY SHARE;
    v_subjects := ARRAY(
        SELECT f.subject_entity_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts));
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_subjects)
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
                 AND f.subject_entity_id <> ALL (v_subjects)) THEN
        RAISE EXCEPTION 'a subject was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    v_now := clock_timestamp();
    PERFORM take_back(v_tenant, v_project, v_agent, array_agg(f.fact_id), 'retracted', p_reason,
                      array_agg(v_now))
    FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.retracted_at IS NULL;
    RETURN QUERY
    SELECT f.fact_id, CASE WHEN f.retracted_at < v_now THEN 'already_retracted' END
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
    UNION ALL
    SELECT u.fact_id, 'garden_forbidden' FROM unnest(v_refused) u(fact_id);
END
$$;""",
    r"""
-- Sets the end of one fact the caller can see (NULL: open again), within the room its timeline leaves.
CREATE OR REPLACE FUNCTION end_fact(p_fact uuid, p_valid_to timestamptz, p_admin boolean)
RETURNS TABLE (refused text, bound timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_fact graph_facts;
    v_subject uuid;
    v_single boolean;
    v_pending boolean;
    v_now timestamptz;
    v_bound timestamptz;
BEGIN
    SELECT f.* INTO v_fact FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id = p_fact AND f.suppression = 0
      AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
      AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens));
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'fact_not_found', NULL::timestamptz;
        RETURN;
    END IF;
    IF v_fact.garden_id IS NOT NULL AND NOT p_admin AND NOT EXISTS (
        SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = v_fact.garden_id
          AND m.agent_id = v_agent AND m.role IN ('admin', 'writer')) THEN
        RETURN QUERY SELECT 'garden_forbidden', NULL::timestamptz;
        RETURN;
    END IF;
    SELECT p.status <> 'pending' AND p.cardinality = 'single', p.status = 'pending' INTO v_single, v_pending
    FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = v_fact.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_fact.subject_entity_id FOR NO KEY UPDATE;
    v_subject := v_fact.subject_entity_id;
    SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact;
    IF v_fact.subject_entity_id <> v_subject THEN
        RAISE EXCEPTION 'the subject was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    IF v_fact.retracted_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_retracted', NULL::timestamptz;
        RETURN;
    END IF;
    IF p_valid_to <= v_fact.valid_from THEN
        RETURN QUERY SELECT 'valid_to_too_early', v_fact.valid_from;
        RETURN;
    END IF;
    SELECT min(f.valid_from) INTO v_bound FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = v_fact.subject_entity_id
      AND f.predicate_id = v_fact.predicate_id AND f.valid_from > v_fact.valid_from AND f.scope = v_fact.scope
      AND f.owner_key = v_fact.owner_key AND f.retracted_at IS NULL
      AND (v_single OR f.object_hash = v_fact.object_hash);
    IF coalesce(p_valid_to, 'infinity') > v_bound THEN
        RETURN QUERY SELECT 'timeline_occupied', v_bound;
        RETURN;
    END IF;
    IF p_valid_to IS DISTINCT FROM v_fact.valid_to THEN
        v_now := clock_timestamp();
        -- Open again, it enters the index that keeps a single-valued predicate single.
        UPDATE graph_facts f SET single_valued = v_single
        WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact AND f.single_valued <> v_single;
        PERFORM move_ends(v_tenant, v_project, ARRAY[p_fact], ARRAY[coalesce(p_valid_to, 'infinity')],
                          ARRAY[v_now]);
        IF v_pending THEN
            PERFORM note_conflicts(v_tenant, v_project, ARRAY[p_fact], ARRAY[v_now]);
        END IF;
    END IF;
    RETURN QUERY SELECT NULL::text, v_bound;
END
$$;""",
    r"""
-- Puts all timelines of one predicate in order: each value ends where the next one starts; of those that start at the
-- same moment the one written last stays. Runs with the rights of its caller, who holds the predicate's row.
CREATE OR REPLACE FUNCTION settle_timelines(p_tenant text, p_agent text, p_predicate uuid, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_place record;
BEGIN
    FOR v_place IN
        WITH live AS (
            SELECT f.project_id, f.fact_id, f.valid_from, f.valid_until, lead(f.valid_from) OVER timeline AS next_from,
                   lead(f.fact_id) OVER timeline AS next_id
            FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.predicate_id = p_predicate AND f.retracted_at IS NULL
            WINDOW timeline AS (PARTITION BY f.project_id, f.scope, f.owner_key, f.subject_entity_id
                                ORDER BY f.valid_from, f.created_at, f.fact_id)
        )
        SELECT l.project_id, array_agg(l.fact_id) AS facts, array_agg(l.next_id) AS nexts,
               array_agg(l.next_from) AS ends, array_agg(p_now) AS moments,
               array_agg(l.fact_id) FILTER (WHERE l.valid_from = l.next_from) AS replaced,
               array_agg(p_now) FILTER (WHERE l.valid_from = l.next_from) AS replaced_at,
               array_agg(l.fact_id) FILTER (WHERE l.valid_from < l.next_from) AS ended,
               array_agg(l.next_from) FILTER (WHERE l.valid_from < l.next_from) AS ended_to,
               array_agg(p_now) FILTER (WHERE l.valid_from < l.next_from) AS ended_at
        FROM live l WHERE l.valid_until > l.next_from GROUP BY l.project_id
    LOOP
        PERFORM move_ends(p_tenant, v_place.project_id, v_place.ended, v_place.ended_to, v_place.ended_at);
        PERFORM take_back(p_tenant, v_place.project_id, p_agent, v_place.replaced, 'corrected', NULL,
                          v_place.replaced_at);
        INSERT INTO graph_fact_supersessions (
            tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
        SELECT p_tenant, v_place.project_id, make_id(), u.older, u.newer, NULL, u.ends, p_now
        FROM unnest(v_place.facts, v_place.nexts, v_place.ends) u(older, newer, ends)
        ON CONFLICT DO NOTHING;
    END LOOP;
END
$$;""",
    r"""
-- Changes cardinality or status of a predicate, with the rules for what is already open. One that becomes single and
-- active needs timelines without overlaps: they are refused with those facts of them that the caller can see, or, with
-- p_resolve, put in order as if each had been written in the order of its start.
-- Holding the predicate's row against everybody who writes by it, this needs no lock on their subjects.
CREATE OR REPLACE FUNCTION configure_predicate(p_predicate uuid, p_cardinality text, p_status text, p_resolve boolean)
RETURNS TABLE (refused text, now_status text, now_cardinality text, timelines bigint, open_facts uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_old graph_predicates;
    v_status text;
    v_cardinality text;
    v_timelines bigint;
    v_open uuid[];
    v_now timestamptz;
BEGIN
    SELECT p.* INTO v_old FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = p_predicate
      AND (p.project_id IS NULL OR p.project_id = v_project)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'predicate_not_found', NULL::text, NULL::text, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    v_status := coalesce(p_status, v_old.status);
    v_cardinality := coalesce(p_cardinality, v_old.cardinality);
    IF v_old.global THEN
        RETURN QUERY SELECT 'predicate_global', v_old.status, v_old.cardinality, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    IF v_status <> v_old.status AND v_old.status <> 'pending'
       AND NOT (v_old.status = 'active' AND v_status = 'deprecated') THEN
        RETURN QUERY SELECT 'predicate_transition', v_old.status, v_old.cardinality, NULL::bigint, NULL::uuid[];
        RETURN;
    END IF;
    v_now := clock_timestamp();

    IF v_status = 'active' AND v_cardinality = 'single'
       AND (v_old.status <> 'active' OR v_old.cardinality <> 'single') THEN
        WITH live AS (
            SELECT f.*, lead(f.valid_from) OVER timeline AS next_from, lag(f.valid_until) OVER timeline AS last_until
            FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.retracted_at IS NULL
            WINDOW timeline AS (PARTITION BY f.project_id, f.scope, f.owner_key, f.subject_entity_id
                                ORDER BY f.valid_from, f.created_at, f.fact_id)
        )
        SELECT count(DISTINCT (f.project_id, f.scope, f.owner_key, f.subject_entity_id))
                   FILTER (WHERE f.valid_until > f.next_from),
               (array_agg(f.fact_id ORDER BY f.valid_from, f.fact_id) FILTER (
                   WHERE f.project_id = v_project AND f.suppression = 0
                     AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
                     AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))))[1:50]
        INTO v_timelines, v_open
        FROM live f WHERE f.valid_until > f.next_from OR f.last_until > f.valid_from;
        IF v_timelines > 0 AND NOT p_resolve THEN
            RETURN QUERY SELECT 'predicate_values_open', v_old.status, v_old.cardinality, v_timelines,
                                coalesce(v_open, '{}');
            RETURN;
        END IF;
        IF v_timelines > 0 THEN
            PERFORM settle_timelines(v_tenant, v_agent, p_predicate, v_now);
        END IF;
        UPDATE graph_facts f SET single_valued = true
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.valid_to IS NULL
          AND f.retracted_at IS NULL AND NOT f.single_valued;
    ELSIF v_old.status = 'active' AND v_old.cardinality = 'single' AND v_cardinality = 'multi' THEN
        UPDATE graph_facts f SET single_valued = false
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate AND f.single_valued;
    END IF;
    IF v_old.status = 'pending' AND v_status = 'active' THEN
        -- Whether two values can stand side by side is decided now.
        UPDATE fact_conflicts c
        SET status = 'resolved', resolved_by = v_agent, resolved_at = v_now,
            resolution_note = 'predicate activated as ' || v_cardinality
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.predicate_id = p_predicate
          AND c.tenant_id = v_tenant AND c.fact_b = f.fact_id AND c.status = 'open';
    END IF;
    UPDATE graph_predicates p SET status = v_status, cardinality = v_cardinality, updated_at = v_now
    WHERE p.tenant_id = v_tenant AND p.predicate_id = p_predicate;
    RETURN QUERY SELECT NULL::text, v_status, v_cardinality, v_timelines, NULL::uuid[];
END
$$;""",
    r"""
-- Makes an entity, or finds the one of that name and gives it the kind and the aliases that were said; answers its id.
-- Of the owner: a name may be taken by an entity that a policy hides.
CREATE OR REPLACE FUNCTION put_entity(
    p_id uuid, p_canonical text, p_norm text, p_kind text, p_aliases json)
RETURNS TABLE (entity_id uuid, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_id uuid;
    v_created boolean;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'put_entity needs a scope with tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO graph_entities (
        tenant_id, entity_id, project_id, canonical, canonical_norm, kind, created_at, updated_at)
    VALUES (v_tenant, p_id, v_project, p_canonical, p_norm, p_kind, v_now, v_now)
    ON CONFLICT (tenant_id, project_id, canonical_norm) DO NOTHING
    RETURNING entity_id INTO v_id;
    v_created := v_id IS NOT NULL;
    IF NOT v_created THEN
        SELECT coalesce(e.merged_into, e.entity_id) INTO v_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.canonical_norm = p_norm;
        PERFORM FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_id AND e.merged_into IS NULL FOR KEY SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
        END IF;
        UPDATE graph_entities e SET kind = p_kind, updated_at = v_now
        WHERE p_kind IS NOT NULL AND e.tenant_id = v_tenant AND e.entity_id = v_id AND e.kind IS DISTINCT FROM p_kind;
    END IF;
    INSERT INTO graph_entity_aliases (
        tenant_id, alias_id, project_id, entity_id, alias, alias_norm, suppression, created_at)
    SELECT v_tenant, a.new_id, v_project, v_id, a.alias, a.norm, e.suppression, v_now
    FROM json_to_recordset(p_aliases) AS a(new_id uuid, alias text, norm text)
    JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = v_id
    WHERE a.norm <> e.canonical_norm
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    RETURN QUERY SELECT v_id, v_created;
END
$$;""",
    r"""
-- Gives an entity the caller can see one more name; answers the alias and whether it is new.
CREATE OR REPLACE FUNCTION put_alias(p_entity uuid, p_id uuid, p_alias text, p_norm text)
RETURNS TABLE (entity_id uuid, alias_id uuid, alias text, created_at timestamptz, created boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_entity uuid;
    v_now timestamptz;
BEGIN
    SELECT coalesce(e.merged_into, e.entity_id) INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.suppression = 0;
    IF v_entity IS NULL THEN
        RETURN;
    END IF;
    -- Held against a merge, which moves the aliases it sees; one that was faster is looked at again.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity AND e.merged_into IS NULL FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    v_now := clock_timestamp();
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity AND e.canonical_norm = p_norm) THEN
        RETURN QUERY SELECT v_entity, NULL::uuid, p_alias, v_now, false;
        RETURN;
    END IF;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    VALUES (v_tenant, p_id, v_project, v_entity, p_alias, p_norm, v_now)
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    RETURN QUERY
    SELECT a.entity_id, a.alias_id, a.alias, a.created_at, a.alias_id = p_id
    FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = v_entity AND a.alias_norm = p_norm;
END
$$;""",
    r"""
-- Before two entities become one: folds facts that will say the same of overlapping times, and puts timelines that will
-- be one in order. Answers how many facts were folded. Runs with the rights of its caller, who holds the locks.
CREATE OR REPLACE FUNCTION fold_beliefs(
    p_tenant text, p_project text, p_agent text, p_from uuid, p_into uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_fact record;
    -- The fact that holds the place the next one is measured against.
    v_line bigint := 0;
    v_held uuid;
    v_object bytea;
    v_from timestamptz;
    v_was timestamptz;
    v_until timestamptz;
    v_folded bigint := 0;
BEGIN
    FOR v_fact IN
        WITH touched AS (
            SELECT f.*, CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END AS subject,
                   CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END AS object,
                   p.status <> 'pending' AND p.cardinality = 'single' AS one_value
            FROM graph_facts f
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id
            WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL
              AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))
        )
        SELECT t.fact_id, t.valid_from, t.valid_until, t.object, t.one_value, t.confidence, t.mentions,
               dense_rank() OVER (ORDER BY t.scope, t.owner_key, t.subject, t.predicate_id,
                                  CASE WHEN NOT t.one_value THEN t.object END) AS line
        FROM touched t ORDER BY line, t.valid_from, t.created_at, t.fact_id
    LOOP
        IF v_line = v_fact.line THEN
            IF v_fact.object = v_object AND v_fact.valid_from < v_until THEN
                v_until := greatest(v_until, v_fact.valid_until);
                v_folded := v_folded + 1;
                INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at)
                SELECT p_tenant, p_project, make_id(), v_held, v.note_id, v.created_at
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.fact_id = v_fact.fact_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                UPDATE graph_facts f
                SET confidence = least(1, (f.confidence * f.mentions + v_fact.confidence * v_fact.mentions)
                                          / (f.mentions + v_fact.mentions)),
                    mentions = f.mentions + v_fact.mentions, updated_at = p_now
                WHERE f.tenant_id = p_tenant AND f.fact_id = v_held;
                UPDATE entity_edges x SET confidence = f.confidence
                FROM graph_facts f
                WHERE x.tenant_id = p_tenant AND x.edge_id = v_held
                  AND f.tenant_id = p_tenant AND f.fact_id = v_held;
                PERFORM take_back(p_tenant, p_project, p_agent, ARRAY[v_fact.fact_id], 'merged', NULL, ARRAY[p_now]);
                INSERT INTO graph_fact_supersessions (
                    tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
                VALUES (p_tenant, p_project, make_id(), v_fact.fact_id, v_held, NULL, v_fact.valid_from, p_now)
                ON CONFLICT DO NOTHING;
                CONTINUE;
            END IF;
            IF v_fact.one_value AND v_until > v_fact.valid_from THEN
                IF v_from = v_fact.valid_from THEN
                    PERFORM take_back(p_tenant, p_project, p_agent, ARRAY[v_held], 'corrected', NULL,
                                      ARRAY[p_now]);
                    v_until := v_was;
                ELSE
                    v_until := v_fact.valid_from;
                END IF;
                INSERT INTO graph_fact_supersessions (
                    tenant_id, project_id, supersession_id, from_fact_id, to_fact_id, note_id, effective_at, created_at)
                VALUES (p_tenant, p_project, make_id(), v_held, v_fact.fact_id, NULL, v_fact.valid_from, p_now)
                ON CONFLICT DO NOTHING;
            END IF;
        END IF;
        IF v_until <> v_was THEN
            PERFORM move_ends(p_tenant, p_project, ARRAY[v_held], ARRAY[v_until], ARRAY[p_now]);
        END IF;
        v_line := v_fact.line;
        v_held := v_fact.fact_id;
        v_object := v_fact.object;
        v_from := v_fact.valid_from;
        v_was := v_fact.valid_until;
        v_until := v_fact.valid_until;
    END LOOP;
    IF v_until <> v_was THEN
        PERFORM move_ends(p_tenant, p_project, ARRAY[v_held], ARRAY[v_until], ARRAY[p_now]);
    END IF;
    RETURN v_folded;
END
$$;""",
    r"""
-- Makes one entity of two: facts, edges, mentions and aliases of p_from become those of p_into, whose name it keeps as
-- an alias; p_from itself stays as a signpost. Beliefs that are now the same fold into one fact with the evidence of
-- both; timelines that are now one are put in order. One transaction, one line in the audit log.
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e SET kind = coalesce(e.kind, o.kind), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
    VALUES (v_tenant, make_id(), v_project, 'admin_action', p_key, v_agent,
            jsonb_build_object('action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved,
                               'facts_folded', v_folded),
            v_now);
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;""",
)
SIGNATURES = (
    "merge_entities(uuid, uuid, text)",
    "fold_beliefs(text, text, text, uuid, uuid, timestamptz)",
    "put_alias(uuid, uuid, text, text)",
    "put_entity(uuid, text, text, text, json)",
    "configure_predicate(uuid, text, text, boolean)",
    "settle_timelines(text, text, uuid, timestamptz)",
    "end_fact(uuid, timestamptz, boolean)",
    "retract_facts(uuid[], uuid, uuid, text, text, boolean)",
    "put_facts(text, text, text, uuid[], text, json, json, json, json, json, boolean)",
    "write_facts(json, json, json, json, json, boolean)",
    "place_facts(text, text, text, fact_draft[], text[], text[], json, json)",
    "note_conflicts(text, text, uuid[], timestamptz[])",
    "take_back(text, text, text, uuid[], text, text, timestamptz[])",
    "move_ends(text, text, uuid[], timestamptz[], timestamptz[])",
    "make_predicates(text, text, json, int[])",
    "make_entities(text, text, json, uuid[], int[])",
    "resolve_predicates(text, text, json)",
    "resolve_entities(text, text, json)",
    "hash_fact(double precision, text, text, text, text, timestamptz, text, text)",
    "make_id()",
)


def upgrade() -> None:
    execute_literal(TABLES)
    execute_literal(TYPES)
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    for table in REFERENCE_TABLES:
        op.execute(f"GRANT SELECT ON {table} TO {APP_ROLE}")
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def downgrade() -> None:
    for signature in SIGNATURES:
        op.execute(f"DROP FUNCTION {signature}")
    op.execute("DROP TYPE fact_step, fact_draft")
    op.execute("DROP TABLE " + ", ".join([*RULES, *REFERENCE_TABLES]))
