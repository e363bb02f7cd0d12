"""History: tombstones, legal holds, erasure with receipts, the chained audit log, decay, sources, derivations."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

TABLES = """
ALTER TABLE graph_entities ADD COLUMN erased_scopes TEXT[], ADD COLUMN held_scopes TEXT[], ADD COLUMN decoy_id UUID;
COMMENT ON COLUMN graph_entities.erased_scopes IS 'where tombstones hide it from everyone';
COMMENT ON COLUMN graph_entities.held_scopes IS 'where legal holds hide it';
COMMENT ON COLUMN graph_entities.decoy_id IS 'shown to writers who must not know that it is hidden';
ALTER TABLE graph_facts ADD COLUMN weighed_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN graph_facts.weighed_at IS 'when its confidence last changed';
CREATE INDEX graph_facts_closed_idx ON graph_facts (tenant_id, project_id, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX graph_facts_retracted_idx
    ON graph_facts (tenant_id, project_id, retracted_at)
    WHERE retracted_at IS NOT NULL;
CREATE INDEX graph_facts_hash_idx ON graph_facts (tenant_id, fact_hash);
CREATE INDEX graph_facts_source_idx
    ON graph_facts (tenant_id, project_id, source, created_at)
    WHERE source IS NOT NULL;
ALTER TABLE entity_edges
    ADD COLUMN weighed_at TIMESTAMP WITH TIME ZONE, ADD COLUMN decayed_at TIMESTAMP WITH TIME ZONE;
COMMENT ON COLUMN entity_edges.weighed_at IS 'when its confidence last changed';
COMMENT ON COLUMN entity_edges.decayed_at IS 'when it last lost confidence to time';
ALTER TABLE graph_fact_evidence ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL;
ALTER TABLE graph_fact_supersessions ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL;
ALTER TABLE fact_closings ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL;
ALTER TABLE fact_conflicts ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL, ADD COLUMN winner UUID;
CREATE INDEX fact_conflicts_list_idx ON fact_conflicts (tenant_id, project_id, detected_at, conflict_id);
ALTER TABLE note_entity_mentions
    ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL, ADD COLUMN by_name BOOLEAN DEFAULT false NOT NULL;
COMMENT ON COLUMN note_entity_mentions.by_name IS 'found in its words for a tombstone, and gone with it';
ALTER TABLE fact_derivations
    ADD COLUMN kind TEXT DEFAULT 'derived' NOT NULL,
    ADD COLUMN suppression SMALLINT DEFAULT 0 NOT NULL,
    ADD CONSTRAINT fact_derivations_kind_check CHECK (kind IN ('derived', 'resolves')),
    DROP CONSTRAINT fact_derivations_pkey,
    ADD CONSTRAINT fact_derivations_pkey PRIMARY KEY (tenant_id, fact_id, source_hash, kind);
ALTER TABLE fact_retractions
    DROP CONSTRAINT fact_retractions_kind_check,
    ADD CONSTRAINT fact_retractions_kind_check
        CHECK (kind IN ('retracted', 'corrected', 'merged', 'decayed', 'resolved'));
ALTER TABLE audit_log
    ADD COLUMN sequence BIGINT,
    ADD COLUMN previous_hash BYTEA,
    ADD COLUMN hash BYTEA,
    ADD COLUMN sealed_at TIMESTAMP WITH TIME ZONE,
    ADD CONSTRAINT audit_log_event_type_check
        CHECK (event_type IN ('fact_write', 'fact_read', 'key_issue', 'key_revoke', 'key_rotation',
            'quarantine_admit', 'quarantine_release', 'quota_breach', 'admin_action', 'tombstone_issued',
            'tombstone_revoked', 'rtbf_legal_hold_issued', 'erasure_completed')),
    ADD CONSTRAINT audit_log_sequence_check CHECK (sequence > 0);
COMMENT ON COLUMN audit_log.sequence IS 'its place in the tenant''s chain; NULL until sealed';
CREATE UNIQUE INDEX audit_log_sequence_key ON audit_log (tenant_id, sequence);
CREATE INDEX audit_log_unsealed_idx ON audit_log (tenant_id, created_at, event_id) WHERE sequence IS NULL;
CREATE TABLE fact_confidences (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    change_id UUID NOT NULL,
    fact_id UUID NOT NULL,
    recorded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    previous_confidence DOUBLE PRECISION NOT NULL,
    previous_mentions INTEGER NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT fact_confidences_pkey PRIMARY KEY (tenant_id, change_id),
    CONSTRAINT fact_confidences_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX fact_confidences_fact_idx ON fact_confidences (tenant_id, fact_id, recorded_at);
CREATE TABLE graph_fact_mentions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    fact_id UUID NOT NULL,
    entity_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT graph_fact_mentions_pkey PRIMARY KEY (tenant_id, fact_id, entity_id),
    CONSTRAINT graph_fact_mentions_tenant_id_fact_id_fkey FOREIGN KEY(tenant_id, fact_id)
        REFERENCES graph_facts (tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_mentions_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX graph_fact_mentions_entity_idx ON graph_fact_mentions (tenant_id, entity_id, fact_id);
DROP INDEX graph_facts_open_entity_key, graph_facts_open_value_key, graph_facts_open_single_key;
CREATE UNIQUE INDEX graph_facts_open_entity_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND object_entity_id IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_value_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_hash)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND object_value IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_single_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND single_valued;
CREATE TABLE sources (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    source_id UUID NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    identity TEXT NOT NULL,
    authority TEXT NOT NULL,
    agents TEXT[] NOT NULL,
    blocklisted BOOLEAN NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT sources_pkey PRIMARY KEY (tenant_id, source_id),
    CONSTRAINT sources_source_key UNIQUE (tenant_id, project_id, source),
    CONSTRAINT sources_identity_check CHECK (identity IN ('signed_manifest', 'manifest', 'capability_token',
        'local_key', 'syntactic', 'none')),
    CONSTRAINT sources_authority_check CHECK (authority IN ('write_token', 'admin', 'same_authority', 'federated',
        'other'))
);
COMMENT ON COLUMN sources.agents IS 'who may speak for it; nobody named: everybody';
CREATE TABLE decay_policies (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    policy_id UUID NOT NULL,
    relation TEXT COLLATE "C" NOT NULL,
    scope TEXT NOT NULL,
    mode TEXT NOT NULL,
    ttl_s DOUBLE PRECISION,
    half_life_s DOUBLE PRECISION,
    min_confidence DOUBLE PRECISION NOT NULL,
    exempt_relations TEXT[] NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    swept_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT decay_policies_pkey PRIMARY KEY (tenant_id, policy_id),
    CONSTRAINT decay_policies_place_key UNIQUE (tenant_id, project_id, relation, scope),
    CONSTRAINT decay_policies_mode_check CHECK (mode IN ('retract', 'confidence', 'dry_run')),
    CONSTRAINT decay_policies_scope_check
        CHECK (scope = '*' OR scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT decay_policies_min_confidence_check CHECK (min_confidence >= 0 AND min_confidence <= 1)
);
COMMENT ON COLUMN decay_policies.relation IS 'a predicate''s name as it is compared, or *';
CREATE TABLE audit_chains (
    tenant_id TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    CONSTRAINT audit_chains_pkey PRIMARY KEY (tenant_id)
);
CREATE TABLE tombstones (
    tenant_id TEXT NOT NULL,
    tombstone_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    entity_id UUID NOT NULL,
    entity TEXT,
    scopes TEXT[],
    reason TEXT NOT NULL,
    created_by TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    legal_hold BOOLEAN NOT NULL,
    erase BOOLEAN NOT NULL,
    erase_at TIMESTAMP WITH TIME ZONE,
    erased_at TIMESTAMP WITH TIME ZONE,
    named BOOLEAN NOT NULL,
    CONSTRAINT tombstones_pkey PRIMARY KEY (tenant_id, tombstone_id),
    CONSTRAINT tombstones_erase_check CHECK (NOT (legal_hold AND erase))
);
COMMENT ON COLUMN tombstones.entity IS 'its name; nothing once it is erased';
COMMENT ON COLUMN tombstones.scopes IS 'NULL: all';
COMMENT ON COLUMN tombstones.reason IS 'empty once the entity is erased';
COMMENT ON COLUMN tombstones.named IS 'notes that only name it count as mentioning it';
CREATE INDEX tombstones_entity_idx ON tombstones (tenant_id, entity_id);
CREATE INDEX tombstones_list_idx ON tombstones (tenant_id, project_id, created_at, tombstone_id);
CREATE TABLE tombstone_revocations (
    tenant_id TEXT NOT NULL,
    revocation_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    tombstone_id UUID NOT NULL,
    reason TEXT NOT NULL,
    revoked_by TEXT NOT NULL,
    key_id TEXT NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT tombstone_revocations_pkey PRIMARY KEY (tenant_id, revocation_id),
    CONSTRAINT tombstone_revocations_tombstone_key UNIQUE (tenant_id, tombstone_id),
    CONSTRAINT tombstone_revocations_tenant_id_tombstone_id_fkey FOREIGN KEY(tenant_id, tombstone_id)
        REFERENCES tombstones (tenant_id, tombstone_id)
);
CREATE TABLE erasure_receipts (
    tenant_id TEXT NOT NULL,
    receipt_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    tombstone_id UUID NOT NULL,
    signed TEXT NOT NULL,
    signature BYTEA NOT NULL,
    public_key BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT erasure_receipts_pkey PRIMARY KEY (tenant_id, receipt_id),
    CONSTRAINT erasure_receipts_tombstone_key UNIQUE (tenant_id, tombstone_id),
    CONSTRAINT erasure_receipts_tenant_id_tombstone_id_fkey FOREIGN KEY(tenant_id, tombstone_id)
        REFERENCES tombstones (tenant_id, tombstone_id)
);
COMMENT ON COLUMN erasure_receipts.signed IS 'the receipt, as the very text that was signed';
INSERT INTO service_secrets (name, secret)
VALUES ('signing', sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
"""
UNDO = """
DELETE FROM service_secrets WHERE name = 'signing';
DROP INDEX graph_facts_open_entity_key, graph_facts_open_value_key, graph_facts_open_single_key;
CREATE UNIQUE INDEX graph_facts_open_entity_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND object_entity_id IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_value_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_hash)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND object_value IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_single_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND single_valued;
DROP TABLE graph_fact_mentions, erasure_receipts, tombstone_revocations, tombstones, audit_chains, decay_policies,
    sources, fact_confidences;
DROP INDEX audit_log_unsealed_idx, audit_log_sequence_key, fact_conflicts_list_idx, graph_facts_source_idx,
    graph_facts_hash_idx, graph_facts_retracted_idx, graph_facts_closed_idx;
ALTER TABLE audit_log
    DROP CONSTRAINT audit_log_sequence_check,
    DROP CONSTRAINT audit_log_event_type_check,
    DROP COLUMN sealed_at, DROP COLUMN hash, DROP COLUMN previous_hash, DROP COLUMN sequence;
DELETE FROM fact_derivations WHERE kind <> 'derived';
ALTER TABLE fact_derivations
    DROP CONSTRAINT fact_derivations_pkey,
    ADD CONSTRAINT fact_derivations_pkey PRIMARY KEY (tenant_id, fact_id, source_hash),
    DROP CONSTRAINT fact_derivations_kind_check,
    DROP COLUMN suppression, DROP COLUMN kind;
UPDATE fact_retractions SET kind = 'corrected' WHERE kind = 'resolved';
ALTER TABLE fact_retractions
    DROP CONSTRAINT fact_retractions_kind_check,
    ADD CONSTRAINT fact_retractions_kind_check CHECK (kind IN ('retracted', 'corrected', 'merged', 'decayed'));
ALTER TABLE note_entity_mentions DROP COLUMN by_name, DROP COLUMN suppression;
ALTER TABLE fact_conflicts DROP COLUMN winner, DROP COLUMN suppression;
ALTER TABLE fact_closings DROP COLUMN suppression;
ALTER TABLE graph_fact_supersessions DROP COLUMN suppression;
ALTER TABLE graph_fact_evidence DROP COLUMN suppression;
ALTER TABLE entity_edges DROP COLUMN decayed_at, DROP COLUMN weighed_at;
ALTER TABLE graph_facts DROP COLUMN weighed_at;
ALTER TABLE graph_entities DROP COLUMN decoy_id, DROP COLUMN held_scopes, DROP COLUMN erased_scopes;
"""

RULES = {
    "fact_confidences": (Rule.NAMES, "SELECT"),
    "graph_fact_mentions": (Rule.NAMES, "SELECT"),
    "sources": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "decay_policies": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "audit_chains": (Rule.TENANT, "SELECT"),
    "tombstones": (Rule.CUSTODY, "SELECT"),
    "tombstone_revocations": (Rule.CUSTODY, "SELECT"),
    "erasure_receipts": (Rule.CUSTODY, "SELECT"),
}
# What hangs on facts and notes is hidden with them from now on, and the audit log keeps to projects.
CHANGED_RULES = {
    "graph_fact_evidence": (Rule.REACH, Rule.NAMES),
    "graph_fact_supersessions": (Rule.REACH, Rule.NAMES),
    "fact_closings": (Rule.REACH, Rule.NAMES),
    "fact_conflicts": (Rule.REACH, Rule.NAMES),
    "fact_derivations": (Rule.REACH, Rule.NAMES),
    "note_entity_mentions": (Rule.REACH, Rule.NAMES),
    "audit_log": (Rule.TENANT, Rule.REACH),
}

FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION hidden_level(p_erased text[], p_held text[], p_scope text)
RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_scope = ANY (p_erased) THEN 1 WHEN p_scope = ANY (p_held) THEN 2 ELSE 0 END::smallint
$$;""",
    """
CREATE OR REPLACE FUNCTION stricter_level(p_one smallint, p_other smallint)
RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN p_one = 1 OR p_other = 1 THEN 1 WHEN p_one = 2 OR p_other = 2 THEN 2 ELSE 0 END::smallint
$$;""",
    """
CREATE OR REPLACE FUNCTION record_event(p_type text, p_key text, p_details jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'record_event needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
    VALUES (v_tenant, make_id(), nullif(current_setting('app.project_id', true), ''), p_type, p_key,
            coalesce(current_setting('app.agent_id', true), ''), p_details, clock_timestamp());
END
$$;""",
    """
CREATE OR REPLACE FUNCTION weigh_fact(
    p_tenant text, p_project text, p_fact uuid, p_confidence double precision, p_moment timestamptz, p_mentions int,
    p_decayed boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    INSERT INTO fact_confidences (
        tenant_id, project_id, change_id, fact_id, recorded_at, previous_confidence, previous_mentions, suppression)
    SELECT p_tenant, p_project, make_id(), f.fact_id, p_moment, f.confidence, f.mentions, f.suppression
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact AND (f.confidence <> p_confidence OR p_mentions > 0);
    UPDATE graph_facts f
    SET confidence = p_confidence, mentions = f.mentions + p_mentions, weighed_at = p_moment, updated_at = p_moment
    WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact;
    UPDATE entity_edges x
    SET confidence = p_confidence, weighed_at = p_moment,
        decayed_at = CASE WHEN p_decayed THEN p_moment ELSE x.decayed_at END
    WHERE x.tenant_id = p_tenant AND x.edge_id = p_fact;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION settle_facts(p_tenant text, p_project text, p_agent text, p_facts uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_changed uuid[];
    v_levels smallint[];
    v_restored uuid[];
    v_touched uuid[];
    v_now timestamptz;
BEGIN
    SELECT array_agg(l.fact_id), array_agg(l.level),
           array_agg(l.fact_id) FILTER (WHERE l.level = 0 AND l.retracted_at IS NULL)
    INTO v_changed, v_levels, v_restored
    FROM (
        SELECT f.fact_id, f.suppression, f.retracted_at, stricter_level(stricter_level(
                   hidden_level(s.erased_scopes, s.held_scopes, f.scope),
                   hidden_level(o.erased_scopes, o.held_scopes, f.scope)), m.level) AS level
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = p_tenant AND s.entity_id = f.subject_entity_id
        LEFT JOIN graph_entities o ON o.tenant_id = p_tenant AND o.entity_id = f.object_entity_id
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM graph_fact_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, f.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.fact_id = f.fact_id
        ) m
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
    ) l
    WHERE l.suppression <> l.level;

    IF cardinality(v_restored) > 0 THEN
        PERFORM FROM graph_predicates p
        WHERE p.tenant_id = p_tenant AND p.predicate_id IN (
            SELECT f.predicate_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored))
        ORDER BY p.predicate_id FOR KEY SHARE;
        PERFORM FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.entity_id IN (
            SELECT f.subject_entity_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored))
        ORDER BY e.entity_id FOR NO KEY UPDATE;
        v_now := clock_timestamp();
        v_touched := ARRAY(
            SELECT DISTINCT x.fact_id FROM graph_facts f
            JOIN graph_facts x ON x.tenant_id = p_tenant AND x.project_id = p_project
                AND x.subject_entity_id = f.subject_entity_id AND x.predicate_id = f.predicate_id
                AND x.scope = f.scope AND x.owner_key = f.owner_key AND x.retracted_at IS NULL
                AND (x.suppression = 0 OR x.fact_id = ANY (v_restored))
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored));
        PERFORM fold_beliefs(p_tenant, p_project, p_agent, v_touched, NULL, NULL, v_now);
        INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at)
        SELECT DISTINCT ON (v.note_id, x.entity_id) p_tenant, p_project, v.note_id, x.entity_id, v.created_at
        FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored) AND x.entity_id IS NOT NULL
        ORDER BY v.note_id, x.entity_id, v.created_at
        ON CONFLICT DO NOTHING;
    END IF;

    UPDATE graph_facts f SET suppression = l.level
    FROM unnest(v_changed, v_levels) l(fact_id, level)
    WHERE f.tenant_id = p_tenant AND f.fact_id = l.fact_id;
    -- Values that were written while they were hidden may contradict others now.
    IF cardinality(v_restored) > 0 THEN
        PERFORM note_conflicts(p_tenant, p_project, array_agg(f.fact_id), array_agg(v_now))
        FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (v_restored) AND f.retracted_at IS NULL
          AND f.object_value IS NOT NULL AND EXISTS (
              SELECT FROM tombstones t
              WHERE t.tenant_id = p_tenant AND t.entity_id IN (f.subject_entity_id, f.object_entity_id)
                AND t.created_at <= f.created_at);
    END IF;
    -- What hangs on a fact is as hidden as the fact.
    UPDATE entity_edges x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.edge_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_retractions x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_closings x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_confidences x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE fact_derivations x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    UPDATE graph_fact_mentions x SET suppression = f.suppression FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id AND x.suppression <> f.suppression;
    -- What links two rows is as hidden as the more hidden of them.
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM graph_facts f, memory_notes n
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts || v_touched)
      AND x.tenant_id = p_tenant AND x.fact_id = f.fact_id
      AND n.tenant_id = p_tenant AND n.note_id = x.note_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
    UPDATE graph_fact_supersessions x SET suppression = l.level
    FROM (
        SELECT x.supersession_id, stricter_level(a.suppression, b.suppression) AS level
        FROM graph_fact_supersessions x
        JOIN graph_facts a ON a.tenant_id = p_tenant AND a.fact_id = x.from_fact_id
        JOIN graph_facts b ON b.tenant_id = p_tenant AND b.fact_id = x.to_fact_id
        WHERE x.tenant_id = p_tenant AND (x.from_fact_id = ANY (p_facts) OR x.to_fact_id = ANY (p_facts))
    ) l
    WHERE x.tenant_id = p_tenant AND x.supersession_id = l.supersession_id AND x.suppression <> l.level;
    UPDATE fact_conflicts x SET suppression = l.level
    FROM (
        SELECT x.conflict_id, stricter_level(a.suppression, b.suppression) AS level
        FROM fact_conflicts x
        JOIN graph_facts a ON a.tenant_id = p_tenant AND a.fact_id = x.fact_a
        JOIN graph_facts b ON b.tenant_id = p_tenant AND b.fact_id = x.fact_b
        WHERE x.tenant_id = p_tenant AND (x.fact_a = ANY (p_facts) OR x.fact_b = ANY (p_facts))
    ) l
    WHERE x.tenant_id = p_tenant AND x.conflict_id = l.conflict_id AND x.suppression <> l.level;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION settle_notes(p_tenant text, p_agent text, p_notes uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_change record;
    v_twin record;
    v_goes record;
    v_stays uuid;
BEGIN
    FOR v_change IN
        SELECT n.*, l.level
        FROM memory_notes n
        CROSS JOIN LATERAL (
            SELECT CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint AS level
            FROM note_entity_mentions m
            JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
            CROSS JOIN LATERAL (SELECT hidden_level(e.erased_scopes, e.held_scopes, n.scope) AS level) h
            WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
        ) l
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression <> l.level
        ORDER BY n.created_at, n.note_id
    LOOP
        IF v_change.level = 0 AND v_change.deleted_at IS NULL THEN
            SELECT n.* INTO v_twin FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.project_id = v_change.project_id AND n.scope = v_change.scope
              AND n.owner_key = v_change.owner_key AND n.thread_id IS NOT DISTINCT FROM v_change.thread_id
              AND n.position IS NOT DISTINCT FROM v_change.position AND n.content_hash = v_change.content_hash
              AND n.deleted_at IS NULL AND n.suppression = 0;
            IF FOUND THEN
                IF v_twin.created_at < v_change.created_at THEN
                    v_goes := v_change;
                ELSE
                    v_goes := v_twin;
                END IF;
                v_stays := CASE v_goes.note_id WHEN v_twin.note_id THEN v_change.note_id ELSE v_twin.note_id END;
                INSERT INTO graph_fact_evidence (
                    tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
                SELECT p_tenant, v.project_id, make_id(), v.fact_id, v_stays, v.created_at, v.suppression
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.note_id = v_goes.note_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                UPDATE memory_notes n SET deleted_at = v_now, updated_at = v_now, version = n.version + 1
                WHERE n.tenant_id = p_tenant AND n.note_id = v_goes.note_id;
                INSERT INTO memory_history (
                    tenant_id, history_id, project_id, note_id, agent_id, scope, garden_id, event, version, changed_by,
                    reason, old_content, created_at)
                VALUES (p_tenant, make_id(), v_goes.project_id, v_goes.note_id, v_goes.agent_id, v_goes.scope,
                        v_goes.garden_id, 'merged', v_goes.version + 1, p_agent, 'an older note says the same',
                        v_goes.content, v_now);
            END IF;
        END IF;
        UPDATE memory_notes n SET suppression = v_change.level
        WHERE n.tenant_id = p_tenant AND n.note_id = v_change.note_id;
    END LOOP;
    UPDATE memory_history x SET suppression = n.suppression FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id AND x.suppression <> n.suppression;
    UPDATE note_entity_mentions x
    SET suppression = stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope))
    FROM memory_notes n, graph_entities e
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND e.tenant_id = p_tenant AND e.entity_id = x.entity_id
      AND x.suppression <> stricter_level(n.suppression, hidden_level(e.erased_scopes, e.held_scopes, n.scope));
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM memory_notes n, graph_facts f
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id
      AND f.tenant_id = p_tenant AND f.fact_id = x.fact_id
      AND x.suppression <> stricter_level(f.suppression, n.suppression);
END
$$;""",
    """
CREATE OR REPLACE FUNCTION settle_entity(p_tenant text, p_project text, p_agent text, p_entity uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_all text[] := ARRAY['agent_private', 'project_shared', 'org_shared', 'public'];
    v_erased text[];
    v_held text[];
    v_level smallint;
    v_decoy uuid := make_id();
BEGIN
    SELECT array_agg(DISTINCT u.scope) FILTER (WHERE NOT t.legal_hold),
           array_agg(DISTINCT u.scope) FILTER (WHERE t.legal_hold)
    INTO v_erased, v_held
    FROM tombstones t CROSS JOIN LATERAL unnest(coalesce(t.scopes, v_all)) u(scope)
    WHERE t.tenant_id = p_tenant AND t.entity_id = p_entity AND t.erased_at IS NULL AND NOT EXISTS (
        SELECT FROM tombstone_revocations r WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id);
    -- While something of it can still be seen, so must its name.
    v_level := CASE WHEN v_erased @> v_all THEN 1
                    WHEN coalesce(v_erased, '{}') || coalesce(v_held, '{}') @> v_all THEN 2 ELSE 0 END;
    UPDATE graph_entities e
    SET erased_scopes = v_erased, held_scopes = v_held, suppression = v_level,
        decoy_id = CASE WHEN v_level > 0 THEN coalesce(e.decoy_id, v_decoy) END
    WHERE e.tenant_id = p_tenant AND e.entity_id IN (
        SELECT p_entity UNION ALL
        SELECT m.entity_id FROM graph_entities m WHERE m.tenant_id = p_tenant AND m.merged_into = p_entity);
    UPDATE graph_entity_aliases a SET suppression = v_level
    WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity AND a.suppression <> v_level;
    PERFORM settle_facts(p_tenant, p_project, p_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
        UNION
        SELECT m.fact_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM settle_notes(p_tenant, p_agent, ARRAY(
        SELECT m.note_id FROM note_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
END
$$;""",
    r"""
CREATE OR REPLACE FUNCTION name_pattern(p_tenant text, p_entity uuid)
RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT concat_ws('|',
               '(?:^|[^0-9a-zÀ-ɏͰ-ӿ])(?:'
                   || string_agg(DISTINCT q.quoted, '|') FILTER (WHERE q.spaced AND length(n.name) > 2)
                   || ')(?:[^0-9a-zÀ-ɏͰ-ӿ]|$)',
               string_agg(DISTINCT q.quoted, '|') FILTER (WHERE NOT q.spaced AND length(n.name) > 1))
    FROM (
        SELECT lower(e.canonical) AS name FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT e.canonical_norm FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
        UNION
        SELECT lower(a.alias) FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
        UNION
        SELECT a.alias_norm FROM graph_entity_aliases a WHERE a.tenant_id = p_tenant AND a.entity_id = p_entity
    ) n
    CROSS JOIN LATERAL (
        SELECT replace(regexp_replace(n.name, '([][\\.^$*+?(){}|-])', '\\\1', 'g'),
                       ' ', '[[:space:]\u00A0]+') AS quoted,
               n.name ~ '^[ -~À-ɏͰ-ӿ]+$' AS spaced
    ) q
    HAVING count(*) FILTER (WHERE length(n.name) > CASE WHEN q.spaced THEN 2 ELSE 1 END) > 0
$$;""",
    """
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION link_holds(p_tenant text, p_project text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_hold tombstones;
BEGIN
    FOR v_hold IN
        SELECT t.* FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        PERFORM link_mentions(p_tenant, p_project, v_hold.entity_id, v_hold.scopes);
    END LOOP;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION says(p_json jsonb, p_pattern text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM jsonb_path_query(p_json, '$.** ? (@.type() == "string")') s(word)
        WHERE normalize(lower(s.word #>> '{}')) ~ p_pattern)
$$;""",
    """
CREATE OR REPLACE FUNCTION find_doomed(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], OUT facts uuid[], OUT notes uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.object_entity_id = p_entity
          AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
        UNION
        SELECT f.fact_id FROM graph_fact_mentions m
        JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = m.fact_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR f.scope = ANY (p_scopes)));
    notes := ARRAY(
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM graph_facts f
        JOIN graph_fact_evidence v ON v.tenant_id = p_tenant AND v.fact_id = f.fact_id
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = v.note_id
        WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (facts) AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
          AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity));
END
$$;""",
    """
CREATE OR REPLACE FUNCTION is_held(p_tenant text, p_fact uuid)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM graph_facts f
        JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id IN (
            SELECT f.subject_entity_id UNION ALL SELECT f.object_entity_id UNION ALL
            SELECT m.entity_id FROM graph_fact_mentions m WHERE m.tenant_id = p_tenant AND m.fact_id = p_fact)
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact AND f.scope = ANY (e.held_scopes))
$$;""",
    """
CREATE OR REPLACE FUNCTION names_any(p_text text, p_ids uuid[])
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT EXISTS (
        SELECT FROM regexp_matches(p_text, '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}', 'g') u(id)
        WHERE u.id[1]::uuid = ANY (p_ids))
$$;""",
    """
CREATE OR REPLACE FUNCTION find_hold(
    p_tenant text, p_project text, p_entity uuid, p_scopes text[], p_facts uuid[], p_notes uuid[])
RETURNS uuid
LANGUAGE sql STABLE
AS $$
    SELECT t.tombstone_id FROM tombstones t
    WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
      AND ((t.entity_id = p_entity AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes))
           OR EXISTS (SELECT FROM graph_facts f
                      WHERE f.tenant_id = p_tenant
                        AND f.fact_id IN (
                            SELECT unnest(p_facts)
                            UNION ALL
                            SELECT v.fact_id FROM graph_fact_evidence v
                            WHERE v.tenant_id = p_tenant AND v.note_id = ANY (p_notes))
                        AND (t.entity_id IN (f.subject_entity_id, f.object_entity_id)
                             OR EXISTS (SELECT FROM graph_fact_mentions m
                                        WHERE m.tenant_id = p_tenant AND m.fact_id = f.fact_id
                                          AND m.entity_id = t.entity_id))
                        AND (t.scopes IS NULL OR f.scope = ANY (t.scopes)))
           OR EXISTS (SELECT FROM note_entity_mentions m
                      JOIN memory_notes n ON n.tenant_id = p_tenant AND n.note_id = m.note_id
                      WHERE m.tenant_id = p_tenant AND m.note_id = ANY (p_notes) AND m.entity_id = t.entity_id
                        AND (t.scopes IS NULL OR n.scope = ANY (t.scopes))))
    ORDER BY t.created_at LIMIT 1
$$;""",
    """
CREATE OR REPLACE FUNCTION find_residue(p_tenant text, p_ids uuid[], p_pattern text, p_values text)
RETURNS TABLE (kind text, table_name text, column_name text, hits bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_column record;
    v_looked bigint := 0;
    v_words text;
BEGIN
    FOR v_column IN
        SELECT c.relname AS table_name, a.attname AS column_name, a.atttypid::regtype::text AS type
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
          AND EXISTS (SELECT FROM pg_attribute t
                      WHERE t.attrelid = c.oid AND t.attname = 'tenant_id' AND NOT t.attisdropped)
          -- What remains to prove that there was something to erase: the id alone.
          AND NOT (c.relname = 'tombstones' AND a.attname = 'entity_id')
        ORDER BY c.relname, a.attnum
    LOOP
        kind := CASE WHEN v_column.type IN ('uuid', 'uuid[]') THEN 'id'
                     WHEN v_column.type IN ('text', 'character varying', 'text[]', 'json', 'jsonb', 'tsvector', 'bytea')
                     THEN 'name' END;
        -- Hashes and signatures hold no words, only bytes that may look like some.
        CONTINUE WHEN kind IS NULL OR v_column.column_name = 'tenant_id'
                   OR (v_column.type = 'bytea' AND v_column.column_name ~ '(hash|signature|public_key)$');
        table_name := v_column.table_name;
        column_name := v_column.column_name;
        v_looked := v_looked + 1;
        -- The names first; the values only tell where somebody else says the same.
        FOREACH v_words SLICE 0 IN ARRAY CASE kind WHEN 'id' THEN ARRAY['id'] ELSE ARRAY['name', 'value'] END LOOP
            kind := v_words;
            EXECUTE format(
                CASE WHEN v_column.type = 'uuid' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I = ANY ($2)'
                WHEN v_column.type = 'uuid[]' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 AND x.%2$I && $2'
                WHEN v_column.type = 'bytea' THEN
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND lower(encode(x.%2$I, ''escape'')) ~ $3'
                ELSE
                    'SELECT count(*) FROM %1$I x WHERE x.tenant_id = $1 '
                    'AND normalize(lower(x.%2$I::text)) ~ $3'
                END, v_column.table_name, v_column.column_name)
            INTO hits USING p_tenant, p_ids, CASE kind WHEN 'value' THEN p_values ELSE p_pattern END;
            IF hits > 0 THEN
                RETURN NEXT;
            END IF;
        END LOOP;
    END LOOP;
    kind := 'looked';
    table_name := NULL;
    column_name := NULL;
    hits := v_looked;
    RETURN NEXT;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION check_as_of(p_tenant text, p_project text, p_as_of timestamptz)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_floor timestamptz;
BEGIN
    SELECT (p.settings ->> 'as_of_floor')::timestamptz INTO v_floor FROM projects p
    WHERE p.tenant_id = p_tenant AND p.project_id = p_project;
    IF p_as_of < v_floor THEN
        RAISE EXCEPTION 'before the retention floor' USING ERRCODE = 'PA001', DETAIL = v_floor;
    END IF;
    RETURN true;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION find_cycles(p_tenant text, p_project text, p_indexes int[], p_hashes bytea[], p_derived json)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE own AS (
            SELECT u.idx, u.hash FROM unnest(p_indexes, p_hashes) u(idx, hash)
        ), cited AS (
            SELECT d.idx, decode(d.hash, 'hex') AS source FROM json_to_recordset(p_derived) AS d(idx int, hash text)
        ), walk(idx, hash) AS (
            SELECT c.idx, c.source FROM cited c JOIN own o ON o.idx = c.idx
            UNION
            SELECT w.idx, n.source FROM walk w
            CROSS JOIN LATERAL (
                SELECT d.source_hash AS source FROM graph_facts f
                JOIN fact_derivations d ON d.tenant_id = p_tenant AND d.fact_id = f.fact_id AND d.kind = 'derived'
                WHERE f.tenant_id = p_tenant AND f.fact_hash = w.hash AND f.project_id = p_project
                UNION ALL
                SELECT c.source FROM own o JOIN cited c ON c.idx = o.idx WHERE o.hash = w.hash
            ) n
        )
        SELECT DISTINCT w.idx FROM walk w JOIN own o ON o.idx = w.idx AND o.hash = w.hash);
END
$$;""",
    """
CREATE OR REPLACE FUNCTION judge_sources(p_sources text[])
RETURNS TABLE (
    source text, identity text, authority text, blocklisted boolean, agents text[], trust_mode text, facts bigint,
    failures bigint, known_for interval)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN QUERY
    SELECT w.source, s.identity, s.authority, coalesce(s.blocklisted, false), s.agents,
           coalesce(p.settings ->> 'trust_mode', 'off'), h.facts, h.failures, clock_timestamp() - h.since
    FROM unnest(p_sources) w(source)
    LEFT JOIN sources s ON s.tenant_id = v_tenant AND s.project_id = v_project AND s.source = w.source
    LEFT JOIN projects p ON p.tenant_id = v_tenant AND p.project_id = v_project
    CROSS JOIN LATERAL (
        SELECT count(*) AS facts, min(f.created_at) AS since,
               count(*) FILTER (WHERE f.retracted_at IS NOT NULL AND EXISTS (
                   SELECT FROM fact_retractions r
                   WHERE r.tenant_id = v_tenant AND r.fact_id = f.fact_id AND r.kind IN ('retracted', 'resolved')))
                   AS failures
        FROM (SELECT f.fact_id, f.created_at, f.retracted_at FROM graph_facts f
              WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = w.source
                AND f.suppression = 0 AND (coalesce(cardinality(s.agents), 0) = 0 OR f.agent_id = ANY (s.agents))
              ORDER BY f.created_at DESC LIMIT 1000) f
    ) h;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION refresh_trust(p_source text, p_agents text[], p_trust double precision,
                                         p_otherwise double precision, p_after uuid, p_limit int)
RETURNS TABLE (fact_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_facts uuid[];
BEGIN
    v_facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = p_source AND f.suppression <> 2
          AND f.fact_id > p_after
        ORDER BY f.fact_id LIMIT p_limit);
    UPDATE graph_facts f
    SET source_trust = CASE WHEN cardinality(p_agents) = 0 OR f.agent_id = ANY (p_agents) THEN p_trust
                            ELSE p_otherwise END
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts);
    UPDATE entity_edges x SET source_trust = f.source_trust FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND x.tenant_id = v_tenant AND x.edge_id = f.fact_id
      AND x.source_trust <> f.source_trust;
    RETURN QUERY SELECT v_facts[cardinality(v_facts)] WHERE cardinality(v_facts) = p_limit;
END
$$;""",
    r"""
CREATE OR REPLACE FUNCTION seal_audit(p_limit int)
RETURNS TABLE (sealed bigint, sequence bigint, hash bytea)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_event record;
    v_sequence bigint;
    v_hash bytea;
    v_previous bytea;
    v_now timestamptz;
    v_sealed bigint := 0;
BEGIN
    IF v_tenant IS NULL THEN
        RAISE EXCEPTION 'seal_audit needs a scope with a tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    INSERT INTO audit_chains (tenant_id, sequence, hash) VALUES (v_tenant, 0, '') ON CONFLICT DO NOTHING;
    SELECT c.sequence, c.hash INTO v_sequence, v_hash FROM audit_chains c WHERE c.tenant_id = v_tenant FOR UPDATE;
    v_now := clock_timestamp();
    FOR v_event IN
        SELECT a.event_id, a.project_id, a.event_type, a.key_id, a.agent_id, a.details, a.created_at
        FROM audit_log a WHERE a.tenant_id = v_tenant AND a.sequence IS NULL
        ORDER BY a.created_at, a.event_id LIMIT p_limit
    LOOP
        v_sequence := v_sequence + 1;
        v_sealed := v_sealed + 1;
        v_previous := v_hash;
        v_hash := sha256(convert_to(concat_ws(E'\n',
            encode(v_previous, 'hex'), v_sequence, v_tenant, v_event.event_id, coalesce(v_event.project_id, ''),
            v_event.event_type, v_event.key_id, v_event.agent_id,
            to_char(v_event.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), v_event.details), 'UTF8'));
        UPDATE audit_log a SET sequence = v_sequence, previous_hash = v_previous, hash = v_hash, sealed_at = v_now
        WHERE a.tenant_id = v_tenant AND a.event_id = v_event.event_id;
    END LOOP;
    IF v_sealed > 0 THEN
        UPDATE audit_chains c SET sequence = v_sequence, hash = v_hash WHERE c.tenant_id = v_tenant;
    END IF;
    RETURN QUERY SELECT v_sealed, v_sequence, v_hash;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION schedule_seals()
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_tenant text := '';
BEGIN
    LOOP
        SELECT a.tenant_id INTO v_tenant FROM audit_log a
        WHERE a.sequence IS NULL AND a.tenant_id > v_tenant ORDER BY a.tenant_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN QUERY
        INSERT INTO jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, priority, created_by, available_at,
                               created_at)
        VALUES (v_tenant, md5('seal ' || v_tenant)::uuid, 'seal', '{}', 'seal', 10, 'schedule', v_now, v_now)
        ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
        SET status = 'pending', attempts = 0, available_at = v_now, created_at = v_now, started_at = NULL,
            finished_at = NULL, last_error = NULL
        WHERE j.status NOT IN ('pending', 'leased')
        RETURNING j.tenant_id, j.job_id;
    END LOOP;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION schedule_decay(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT d.tenant_id, make_id(), d.project_id, 'decay', '{}', 'decay', 'schedule', v_now, v_now
    FROM (SELECT DISTINCT d.tenant_id, d.project_id FROM decay_policies d
          WHERE d.mode <> 'dry_run' AND (d.swept_at IS NULL OR d.swept_at < p_before)) d
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_meant record;
    v_entity graph_entities;
    v_other uuid;
    v_facts uuid[];
    v_notes uuid[];
    v_now timestamptz;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'issue_tombstone needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- One tombstone at a time in a project: each computes from all that there are.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT r.entity_id, r.candidates INTO v_meant FROM resolve_entities(v_tenant, v_project, p_entity) r;
    IF v_meant.entity_id IS NULL THEN
        RETURN QUERY SELECT CASE WHEN v_meant.candidates IS NULL THEN 'entity_not_found' ELSE 'entity_ambiguous' END,
                            NULL::uuid, NULL::text, v_meant.candidates, NULL::uuid, NULL::timestamptz, NULL::bigint,
                            NULL::bigint;
        RETURN;
    END IF;
    -- Those who write about it finish first; those who come later see that it is hidden.
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_meant.entity_id FOR UPDATE;
    IF NOT FOUND OR v_entity.merged_into IS NOT NULL THEN
        RAISE EXCEPTION 'the entity was merged or erased meanwhile' USING ERRCODE = '40001';
    END IF;
    SELECT t.tombstone_id INTO v_other FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.entity_id = v_entity.entity_id AND t.legal_hold = p_hold
      AND t.erased_at IS NULL
      -- What is only hidden can be erased without showing it again.
      AND (t.erase OR NOT p_erase)
      AND (t.scopes IS NULL OR p_scopes IS NULL OR t.scopes && p_scopes)
      AND NOT EXISTS (SELECT FROM tombstone_revocations r
                      WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
    ORDER BY t.created_at LIMIT 1;
    IF FOUND THEN
        RETURN QUERY SELECT 'tombstone_already_exists', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                            NULL::timestamptz, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        v_other := find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes);
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint;
            RETURN;
        END IF;
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstones (
        tenant_id, tombstone_id, project_id, entity_id, entity, scopes, reason, created_by, key_id, created_at,
        legal_hold, erase, erase_at, named)
    VALUES (v_tenant, p_id, v_project, v_entity.entity_id, v_entity.canonical, p_scopes, p_reason, v_agent, p_key,
            v_now, p_hold, p_erase, p_erase_at, p_named);
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_entity.entity_id);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts)'
      AND names_any(encode(k.body, 'escape'), v_notes || v_facts || v_entity.entity_id);
    PERFORM record_event('tombstone_issued', p_key, jsonb_build_object(
        'tombstone_id', p_id, 'entity_id', v_entity.entity_id, 'legal_hold', p_hold, 'erase', p_erase));
    IF p_erase THEN
        -- Of the whole tenant: agents of the project must not see that there is such a job.
        INSERT INTO jobs (tenant_id, job_id, agent_id, kind, payload, dedupe_key, priority, created_by, available_at,
                          created_at)
        VALUES (v_tenant, p_job, v_agent, 'erase',
                jsonb_build_object('tombstone_id', p_id, 'project_id', v_project), p_id::text, 5, p_key, p_erase_at,
                v_now);
    END IF;
    IF p_hold THEN
        PERFORM record_event('rtbf_legal_hold_issued', p_key, jsonb_build_object(
            'tombstone_id', p_id, 'entity_id', v_entity.entity_id));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_entity.canonical, NULL::uuid[], NULL::uuid, v_now,
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION revoke_tombstone(p_tombstone uuid, p_id uuid, p_reason text, p_key text)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_tombstone tombstones;
    v_facts uuid[];
    v_notes uuid[];
    v_now timestamptz;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND THEN
        RETURN 'tombstone_not_found';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN 'tombstone_erased';
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN 'tombstone_already_revoked';
    END IF;
    v_now := clock_timestamp();
    INSERT INTO tombstone_revocations (tenant_id, revocation_id, project_id, tombstone_id, reason, revoked_by, key_id,
                                       revoked_at)
    VALUES (v_tenant, p_id, v_project, p_tombstone, p_reason, v_agent, p_key, v_now);
    -- Which notes and facts name it was found out for tombstones alone.
    IF NOT EXISTS (SELECT FROM tombstones t
                   WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND t.named
                     AND t.erased_at IS NULL
                     AND NOT EXISTS (SELECT FROM tombstone_revocations r
                                     WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)) THEN
        WITH gone AS (
            DELETE FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.by_name
            RETURNING m.note_id
        ) SELECT array_agg(g.note_id) INTO v_notes FROM gone g;
        WITH gone AS (
            DELETE FROM graph_fact_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.fact_id
        ) SELECT array_agg(g.fact_id) INTO v_facts FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM record_event('tombstone_revoked', p_key, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id));
    UPDATE jobs j SET status = 'cancelled', finished_at = v_now
    WHERE j.tenant_id = v_tenant AND j.kind = 'erase' AND j.status = 'pending' AND j.dedupe_key = p_tombstone::text;
    IF v_tombstone.legal_hold THEN
        UPDATE jobs j
        SET status = 'pending', attempts = 0, available_at = v_now, finished_at = NULL, last_error = NULL
        FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.erase AND t.erased_at IS NULL
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id)
          AND j.tenant_id = v_tenant AND j.kind = 'erase' AND j.dedupe_key = t.tombstone_id::text
          AND j.status = 'failed';
    END IF;
    RETURN NULL;
END
$$;""",
    r"""
CREATE OR REPLACE FUNCTION erase_entity(p_tombstone uuid, p_job uuid)
RETURNS TABLE (refused text, report jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_tombstone tombstones;
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_whole boolean;
    v_entities uuid[] := '{}';
    v_pattern text;
    v_facts uuid[];
    v_notes uuid[];
    v_ids uuid[];
    v_values text;
    v_count_values bigint := 0;
    v_counts jsonb := '{}';
    v_left jsonb;
    v_count bigint;
    v_now timestamptz;
    v_gone bytea := convert_to(
        '{"code":"not_found","message":"What this answered is no longer there.","details":{}}', 'UTF8');
    v_table text;
BEGIN
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone;
    IF NOT FOUND OR NOT v_tombstone.erase THEN
        RETURN QUERY SELECT 'tombstone_not_found', NULL::jsonb;
        RETURN;
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id)
    ORDER BY e.entity_id FOR UPDATE;
    SELECT t.* INTO v_tombstone FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone FOR UPDATE;
    IF v_tombstone.erased_at IS NOT NULL THEN
        RETURN QUERY SELECT 'already_erased', NULL::jsonb;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM tombstone_revocations r
               WHERE r.tenant_id = v_tenant AND r.tombstone_id = p_tombstone) THEN
        RETURN QUERY SELECT 'tombstone_already_revoked', NULL::jsonb;
        RETURN;
    END IF;
    v_now := clock_timestamp();
    IF v_tombstone.erase_at > v_now THEN
        RETURN QUERY SELECT 'not_yet', jsonb_build_object('erase_at', v_tombstone.erase_at);
        RETURN;
    END IF;
    v_whole := v_tombstone.scopes IS NULL;

    -- 1. What it is about: what was written since the tombstone belongs to it too.
    IF v_tombstone.named THEN
        PERFORM link_mentions(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes);
    END IF;
    PERFORM link_holds(v_tenant, v_project);
    SELECT d.facts, d.notes INTO v_facts, v_notes
    FROM find_doomed(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes) IS NOT NULL THEN
        RETURN QUERY SELECT 'legal_hold', NULL::jsonb;
        RETURN;
    END IF;
    IF v_whole THEN
        v_pattern := name_pattern(v_tenant, v_tombstone.entity_id);
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant
              AND (e.entity_id = v_tombstone.entity_id OR e.merged_into = v_tombstone.entity_id));
    END IF;
    v_ids := v_facts || v_notes || v_entities || ARRAY(
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.decoy_id IS NOT NULL);
    -- Values that tell something by themselves; the newest, as many as can be searched for.
    SELECT string_agg(v.quoted, '|'), count(*) INTO v_values, v_count_values
    FROM (
        SELECT regexp_replace(normalize(lower(f.object_value)), '([][\\.^$*+?(){}|-])', '\\\1', 'g') AS quoted
        FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND length(f.object_value) BETWEEN 8 AND 100
          AND v_tombstone.entity_id IN (f.subject_entity_id, f.object_entity_id)
        ORDER BY f.created_at DESC LIMIT 50
    ) v;

    -- 2. What was kept of it elsewhere: by id anywhere, by name in its own project.
    UPDATE idempotency_keys k SET status = 404, body = v_gone
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.body IS NOT NULL
      AND (names_any(encode(k.body, 'escape'), v_ids)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    UPDATE jobs j
    SET payload = '{}', last_error = NULL,
        status = CASE WHEN j.status = 'pending' THEN 'cancelled' ELSE j.status END,
        finished_at = CASE WHEN j.status = 'pending' THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(j.payload::text || coalesce(j.last_error, ''), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        UPDATE graph_facts f SET source = NULL
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
          AND NOT is_held(v_tenant, f.fact_id);
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    -- 3. The rows themselves, with all that hangs on them; each kind is counted before it goes.
    FOREACH v_table IN ARRAY ARRAY['graph_fact_evidence', 'fact_closings', 'fact_confidences', 'fact_retractions',
                                   'fact_derivations', 'graph_fact_mentions'] LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.fact_id = ANY ($2)', v_table)
        INTO v_count USING v_tenant, v_facts;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    SELECT count(*) INTO v_count FROM fact_conflicts x
    WHERE x.tenant_id = v_tenant AND (x.fact_a = ANY (v_facts) OR x.fact_b = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('fact_conflicts', v_count);
    SELECT count(*) INTO v_count FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND (x.from_fact_id = ANY (v_facts) OR x.to_fact_id = ANY (v_facts));
    v_counts := v_counts || jsonb_build_object('graph_fact_supersessions', v_count);
    SELECT count(*) INTO v_count FROM entity_edges x WHERE x.tenant_id = v_tenant AND x.edge_id = ANY (v_facts);
    v_counts := v_counts || jsonb_build_object('entity_edges', v_count);
    -- How a conflict of others ended stays; by what it was decided goes.
    UPDATE fact_conflicts x SET winner = NULL WHERE x.tenant_id = v_tenant AND x.winner = ANY (v_facts);
    DELETE FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_facts', v_count);

    -- A link between facts that stay loses only its note.
    DELETE FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes) AND EXISTS (
        SELECT FROM graph_fact_supersessions o
        WHERE o.tenant_id = v_tenant AND o.from_fact_id = x.from_fact_id AND o.to_fact_id = x.to_fact_id
          AND (o.note_id IS NULL OR (o.note_id = ANY (v_notes) AND o.supersession_id < x.supersession_id)));
    UPDATE graph_fact_supersessions x SET note_id = NULL
    WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    SELECT count(*) INTO v_count FROM memory_history x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes);
    v_counts := v_counts || jsonb_build_object('memory_history', v_count);
    SELECT count(*) INTO v_count FROM note_entity_mentions x
    WHERE x.tenant_id = v_tenant AND (x.note_id = ANY (v_notes) OR x.entity_id = ANY (v_entities));
    v_counts := v_counts || jsonb_build_object('note_entity_mentions', v_count);
    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    IF v_whole THEN
        DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.merged_into = v_tombstone.entity_id;
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id;
        v_counts := v_counts || jsonb_build_object('graph_entities', cardinality(v_entities));
        -- All that was said of it when it was hidden, now or earlier.
        UPDATE tombstone_revocations r SET reason = '' FROM tombstones t
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id
          AND r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id;
        UPDATE tombstones t SET entity = NULL, reason = ''
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id;
        UPDATE tombstones t SET erased_at = v_now
        WHERE t.tenant_id = v_tenant AND t.entity_id = v_tombstone.entity_id AND NOT EXISTS (
            SELECT FROM tombstone_revocations r WHERE r.tenant_id = v_tenant AND r.tombstone_id = t.tombstone_id);
    ELSE
        UPDATE tombstones t SET erased_at = v_now WHERE t.tenant_id = v_tenant AND t.tombstone_id = p_tombstone;
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    END IF;

    -- 4. Proof: every column of every table.
    SELECT coalesce(jsonb_agg(jsonb_build_object('kind', r.kind, 'table', r.table_name, 'column', r.column_name,
                                                 'rows', r.hits)), '[]')
    INTO v_left FROM find_residue(v_tenant, v_ids, v_pattern, v_values) r;
    IF v_left @> '[{"kind": "id"}]' THEN
        RAISE EXCEPTION 'erasure left rows behind: %', v_left;
    END IF;
    PERFORM record_event('erasure_completed', v_tombstone.key_id, jsonb_build_object(
        'tombstone_id', p_tombstone, 'entity_id', v_tombstone.entity_id, 'facts', cardinality(v_facts),
        'notes', cardinality(v_notes)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'entity_id', v_tombstone.entity_id, 'scope', to_jsonb(v_tombstone.scopes), 'counts', v_counts,
        'found', v_left, 'names', (v_pattern IS NOT NULL)::int, 'values', v_count_values,
        'requested_at', v_tombstone.created_at, 'completed_at', v_now);
END
$$;""",
    """
CREATE OR REPLACE FUNCTION store_receipt(
    p_receipt uuid, p_tombstone uuid, p_signed text, p_signature bytea, p_public_key bytea, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    INSERT INTO erasure_receipts (
        tenant_id, receipt_id, project_id, tombstone_id, signed, signature, public_key, created_at)
    SELECT v_tenant, p_receipt, v_project, t.tombstone_id, p_signed, p_signature, p_public_key, p_now
    FROM tombstones t
    WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND t.tombstone_id = p_tombstone
      AND t.erased_at IS NOT NULL
    ON CONFLICT DO NOTHING;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION resolve_conflict(
    p_conflict uuid, p_winner uuid, p_note text, p_key text, p_admin boolean)
RETURNS TABLE (refused text, losers uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_conflict fact_conflicts;
    v_one graph_facts;
    v_winner graph_facts;
    v_losers uuid[];
    v_now timestamptz;
BEGIN
    SELECT c.* INTO v_conflict FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.conflict_id = p_conflict AND c.suppression = 0;
    SELECT f.* INTO v_one FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = v_conflict.fact_a
      AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
      AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens));
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'conflict_not_found', NULL::uuid[];
        RETURN;
    END IF;
    IF v_one.garden_id IS NOT NULL AND NOT p_admin AND NOT EXISTS (
        SELECT FROM garden_members m WHERE m.tenant_id = v_tenant AND m.garden_id = v_one.garden_id
          AND m.agent_id = v_agent AND m.role IN ('admin', 'writer')) THEN
        RETURN QUERY SELECT 'garden_forbidden', NULL::uuid[];
        RETURN;
    END IF;
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = v_one.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_one.subject_entity_id FOR NO KEY UPDATE;
    SELECT c.* INTO v_conflict FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND c.conflict_id = p_conflict FOR UPDATE;
    PERFORM FROM (SELECT f.suppression FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND f.fact_id IN (v_conflict.fact_a, v_conflict.fact_b, p_winner)
                  ORDER BY f.fact_id FOR UPDATE) f
    WHERE f.suppression > 0;
    IF FOUND THEN
        RAISE EXCEPTION 'a fact was hidden meanwhile' USING ERRCODE = '40001';
    END IF;
    IF v_conflict.status = 'resolved' THEN
        RETURN QUERY SELECT 'conflict_already_resolved', NULL::uuid[];
        RETURN;
    END IF;
    SELECT f.* INTO v_winner FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = p_winner AND f.retracted_at IS NULL
      AND f.subject_entity_id = v_one.subject_entity_id AND f.predicate_id = v_one.predicate_id
      AND f.scope = v_one.scope AND f.owner_key = v_one.owner_key;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'winner_invalid', NULL::uuid[];
        RETURN;
    END IF;
    v_now := clock_timestamp();
    v_losers := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id IN (v_conflict.fact_a, v_conflict.fact_b)
          AND f.fact_id <> p_winner AND f.retracted_at IS NULL ORDER BY f.fact_id);
    -- A value that was just written for this is no new conflict.
    DELETE FROM fact_conflicts c
    WHERE c.tenant_id = v_tenant AND v_winner.created_at >= now() AND c.conflict_id <> p_conflict
      AND c.fact_b = p_winner AND c.fact_a = ANY (v_losers);
    PERFORM weigh_fact(v_tenant, v_project, p_winner, 1.0, v_now, 0, false);
    INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, kind, created_at)
    SELECT v_tenant, v_project, p_winner, f.fact_hash, 'resolves', v_now
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_losers)
    ON CONFLICT DO NOTHING;
    UPDATE fact_conflicts c
    SET status = 'resolved', resolved_by = v_agent, resolved_at = v_now, resolution_note = p_note, winner = p_winner
    WHERE c.tenant_id = v_tenant AND c.conflict_id = p_conflict;
    PERFORM take_back(v_tenant, v_project, v_agent, v_losers, 'resolved', p_note,
                      array_fill(v_now, ARRAY[cardinality(v_losers)]));
    PERFORM record_event('fact_write', p_key, jsonb_build_object(
        'action', 'conflict_resolve', 'conflict_id', p_conflict, 'winner', p_winner, 'retracted', to_jsonb(v_losers)));
    RETURN QUERY SELECT NULL::text, v_losers;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION sweep_decay(p_now timestamptz, p_dry boolean, p_after uuid, p_limit int)
RETURNS TABLE (fact_id uuid, policy_id uuid, action text, before double precision, after double precision)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_due record;
    v_fact graph_facts;
    v_skipped boolean := false;
BEGIN
    FOR v_due IN
        WITH policy AS (
            SELECT d.*, r.predicate_id AS meant,
                   ARRAY(SELECT x.predicate_id FROM resolve_predicates(v_tenant, v_project, (
                             SELECT json_agg(json_build_object('ref', u.place, 'norm', u.name))
                             FROM unnest(d.exempt_relations) WITH ORDINALITY u(name, place))) x
                         WHERE x.predicate_id IS NOT NULL) AS exempt,
                   (d.relation <> '*')::int * 2 + (d.scope <> '*')::int AS rank
            FROM decay_policies d
            LEFT JOIN LATERAL resolve_predicates(
                v_tenant, v_project, json_build_array(json_build_object('ref', 1, 'norm', d.relation))) r
                ON d.relation <> '*'
            WHERE d.tenant_id = v_tenant AND d.project_id = v_project
        ), judged AS (
            SELECT f.fact_id, f.subject_entity_id, f.predicate_id, f.confidence, d.policy_id, d.mode, d.ttl_s,
                   d.half_life_s, d.min_confidence,
                   extract(epoch FROM p_now - coalesce(f.weighed_at, f.created_at))::double precision AS age
            FROM graph_facts f
            CROSS JOIN LATERAL (
                SELECT p.* FROM policy p
                WHERE (p.relation = '*' OR p.meant = f.predicate_id) AND (p.scope = '*' OR p.scope = f.scope)
                  AND f.predicate_id <> ALL (p.exempt)
                ORDER BY p.rank DESC, p.policy_id LIMIT 1
            ) d
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
              AND f.suppression = 0 AND f.confidence > 0 AND f.fact_id > p_after
        )
        SELECT j.*, c.fallen,
               CASE WHEN j.ttl_s IS NOT NULL AND j.mode <> 'confidence' THEN 'retract' ELSE 'confidence' END AS act
        FROM judged j
        CROSS JOIN LATERAL (
            SELECT least(j.confidence, greatest(
                j.min_confidence,
                j.confidence * exp(greatest(-700, -ln(2) * greatest(j.age, 0) / j.half_life_s)))) AS fallen
        ) c
        WHERE CASE WHEN j.ttl_s IS NOT NULL AND j.mode <> 'confidence' THEN j.age > j.ttl_s
                   -- What hardly changed waits: each change is a line of history, and nothing is lost by waiting.
                   ELSE j.confidence - c.fallen >= 0.001 END
        ORDER BY j.fact_id LIMIT p_limit
    LOOP
        IF NOT p_dry AND v_due.mode <> 'dry_run' THEN
            PERFORM FROM graph_predicates p
            WHERE p.tenant_id = v_tenant AND p.predicate_id = v_due.predicate_id FOR KEY SHARE;
            PERFORM FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_due.subject_entity_id FOR NO KEY UPDATE;
            SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = v_due.fact_id
            FOR UPDATE;
            -- Said again, taken back or hidden meanwhile: its time has not come.
            v_skipped := v_fact.retracted_at IS NOT NULL OR v_fact.suppression <> 0
                         OR v_fact.confidence <> v_due.confidence
                         OR coalesce(v_fact.weighed_at, v_fact.created_at) > p_now;
            IF v_skipped THEN
                NULL;
            ELSIF v_due.act = 'retract' THEN
                PERFORM take_back(v_tenant, v_project, v_agent, ARRAY[v_due.fact_id], 'decayed', NULL,
                                  ARRAY[clock_timestamp()]);
            ELSE
                PERFORM weigh_fact(v_tenant, v_project, v_due.fact_id, v_due.fallen, clock_timestamp(), 0, true);
            END IF;
        END IF;
        fact_id := v_due.fact_id;
        policy_id := v_due.policy_id;
        action := CASE WHEN v_skipped THEN 'skipped' WHEN v_due.mode = 'dry_run' THEN 'dry_run' ELSE v_due.act END;
        before := v_due.confidence;
        after := CASE v_due.act WHEN 'retract' THEN 0 ELSE v_due.fallen END;
        RETURN NEXT;
    END LOOP;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION configure_predicate(p_predicate uuid, p_cardinality text, p_status text, p_resolve boolean,
                                               p_key text DEFAULT '')
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
              AND f.suppression = 0
            WINDOW timeline AS (PARTITION BY f.project_id, f.scope, f.owner_key, f.subject_entity_id
                                ORDER BY f.valid_from, f.created_at, f.fact_id)
        )
        SELECT count(DISTINCT (f.project_id, f.scope, f.owner_key, f.subject_entity_id))
                   FILTER (WHERE f.valid_until > f.next_from),
               (array_agg(f.fact_id ORDER BY f.valid_from, f.fact_id) FILTER (
                   WHERE f.project_id = v_project
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
    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'predicate_change', 'predicate_id', p_predicate, 'status', v_status, 'cardinality', v_cardinality,
        'timelines_settled', coalesce(v_timelines, 0)));
    RETURN QUERY SELECT NULL::text, v_status, v_cardinality, v_timelines, NULL::uuid[];
END
$$;""",
    """
CREATE OR REPLACE FUNCTION end_fact(p_fact uuid, p_valid_to timestamptz, p_admin boolean, p_key text DEFAULT '')
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
    SELECT f.* INTO v_fact FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = p_fact FOR UPDATE;
    IF NOT FOUND OR v_fact.subject_entity_id <> v_subject OR v_fact.suppression > 0 THEN
        RAISE EXCEPTION 'the subject was merged or hidden meanwhile' USING ERRCODE = '40001';
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
      AND f.owner_key = v_fact.owner_key AND f.retracted_at IS NULL AND f.suppression = 0
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
        PERFORM record_event('fact_write', p_key, jsonb_build_object(
            'action', 'end', 'fact_ids', jsonb_build_array(p_fact)));
        IF v_pending THEN
            PERFORM note_conflicts(v_tenant, v_project, ARRAY[p_fact], ARRAY[v_now]);
        END IF;
    END IF;
    RETURN QUERY SELECT NULL::text, v_bound;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION fold_beliefs(
    p_tenant text, p_project text, p_agent text, p_facts uuid[], p_from uuid, p_into uuid,
    p_now timestamptz)
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
            WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.retracted_at IS NULL
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
                INSERT INTO graph_fact_evidence (
                    tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
                SELECT p_tenant, p_project, make_id(), v_held, v.note_id, v.created_at, v.suppression
                FROM graph_fact_evidence v WHERE v.tenant_id = p_tenant AND v.fact_id = v_fact.fact_id
                ON CONFLICT (tenant_id, fact_id, note_id) DO NOTHING;
                PERFORM weigh_fact(p_tenant, p_project, v_held,
                                   least(1, (f.confidence * f.mentions + v_fact.confidence * v_fact.mentions)
                                            / (f.mentions + v_fact.mentions)), p_now, v_fact.mentions, false)
                FROM graph_facts f WHERE f.tenant_id = p_tenant AND f.fact_id = v_held;
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
    """
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
          AND e.suppression = 0
          AND e.entity_id = ANY (v_known);
    END IF;
    RETURN v_known;
END
$$;""",
    """
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
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
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
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
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
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
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

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;""",
    """
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
        INSERT INTO fact_closings (
            tenant_id, project_id, closing_id, fact_id, recorded_at, previous_valid_to, suppression)
        VALUES (p_tenant, p_project, make_id(), p_facts[i], p_moments[i], v_fact.valid_to, v_fact.suppression);
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
    """
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
                  AND f.suppression = 0 AND d.suppression = 0
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
                  AND f.suppression = 0 AND d.suppression = 0
                ORDER BY f.valid_from DESC LIMIT 1
            ) x WHERE x.valid_until > d.valid_from AND x.object_hash <> d.object_hash
        ) other ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode = 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
            ORDER BY f.valid_from LIMIT 1
        ) next_value ON true
        LEFT JOIN LATERAL (
            SELECT f.fact_id, f.valid_from, f.valid_until FROM graph_facts f
            WHERE d.mode <> 2 AND f.tenant_id = p_tenant AND f.project_id = p_project
              AND f.subject_entity_id = d.subject_id AND f.predicate_id = d.predicate_id
              AND f.object_hash BETWEEN d.object_hash AND d.object_hash AND f.valid_from > d.valid_from
              AND f.scope = d.scope AND f.owner_key = d.owner_key AND f.retracted_at IS NULL
                  AND f.suppression = 0 AND d.suppression = 0
            ORDER BY f.object_hash, f.valid_from LIMIT 1
        ) next_same ON true
        CROSS JOIN LATERAL (
            SELECT coalesce(next_value.fact_id, next_same.fact_id) AS fact_id,
                   coalesce(next_value.valid_from, next_same.valid_from) AS valid_from,
                   coalesce(next_value.valid_until, next_same.valid_until) AS valid_until
        ) next;

        -- What is about to change is held, and must still be in sight.
        IF EXISTS (SELECT FROM unnest(v_steps) w WHERE NOT w.is_new OR w.other_id IS NOT NULL OR w.stretches) THEN
            PERFORM FROM unnest(v_steps) w
            CROSS JOIN LATERAL (VALUES (CASE WHEN NOT w.is_new THEN w.fact_id END), (w.other_id)) x(fact_id)
            CROSS JOIN LATERAL (
                SELECT f.suppression FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.fact_id = x.fact_id FOR UPDATE) f
            WHERE f.suppression > 0;
            IF FOUND THEN
                RAISE EXCEPTION 'a fact was hidden while another was written' USING ERRCODE = '40001';
            END IF;
        END IF;

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
                SELECT least(1, (f.confidence * f.mentions + v_confidence) / (f.mentions + 1)) INTO v_confidence
                FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.fact_id = v_held AND f.retracted_at IS NULL;
                IF NOT FOUND THEN
                    RAISE EXCEPTION 'a fact was taken back while it was confirmed' USING ERRCODE = '40001';
                END IF;
                PERFORM weigh_fact(p_tenant, p_project, v_held, v_confidence, v_moment, 1, false);
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
                      AND f.retracted_at IS NULL AND f.suppression = 0 AND f.valid_from > d.valid_from
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
        -- A note that is being hidden is waited for, and then there is no such note.
        PERFORM FROM (SELECT DISTINCT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, note_id uuid)
                      JOIN unnest(v_all) w ON w.idx = v.idx ORDER BY v.note_id) v
        LEFT JOIN LATERAL (
            SELECT n.suppression FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = v.note_id FOR SHARE) n ON true
        WHERE n.suppression IS DISTINCT FROM 0;
        IF FOUND THEN
            RAISE EXCEPTION 'a note was hidden while it was cited' USING ERRCODE = '40001';
        END IF;
        INSERT INTO graph_fact_evidence (tenant_id, project_id, evidence_id, fact_id, note_id, created_at, suppression)
        SELECT p_tenant, p_project, make_id(), w.fact_id, v.note_id, min(d.created_at), min(d.suppression)
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
        WHERE x.entity_id IS NOT NULL AND d.suppression = 0
        ORDER BY v.note_id, x.entity_id
        ON CONFLICT (tenant_id, note_id, entity_id) DO UPDATE SET by_name = false
        WHERE note_entity_mentions.by_name;
    END IF;
    IF json_array_length(p_derived) > 0 THEN
        -- What a fact came from is fixed when it is made.
        INSERT INTO fact_derivations (tenant_id, project_id, fact_id, source_hash, created_at, suppression)
        SELECT DISTINCT p_tenant, p_project, w.fact_id, decode(v.hash, 'hex'), d.created_at, d.suppression
        FROM json_to_recordset(p_derived) AS v(idx int, hash text)
        JOIN unnest(v_all) w ON w.idx = v.idx AND w.is_new
        JOIN unnest(p_drafts) d ON d.idx = v.idx
        ON CONFLICT DO NOTHING;
    END IF;
    RETURN v_all;
END
$$;""",
    """
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
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity AND e.merged_into IS NULL AND e.suppression = 0
    FOR KEY SHARE;
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
    """
CREATE OR REPLACE FUNCTION put_entity(
    p_id uuid, p_canonical text, p_norm text, p_kind text, p_aliases json)
RETURNS TABLE (entity_id uuid, created boolean, hidden uuid, created_at timestamptz)
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
    v_hidden uuid;
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
        SELECT e.decoy_id INTO v_hidden FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_id AND e.suppression > 0;
        IF FOUND THEN
            RETURN QUERY SELECT NULL::uuid, false, v_hidden, v_now;
            RETURN;
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
    RETURN QUERY SELECT v_id, v_created, NULL::uuid, v_now;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION put_facts(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text,
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean,
    p_key text, p_admin boolean)
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
    RETURN QUERY
    SELECT * FROM write_facts(p_entities, p_predicates, p_facts, p_evidence, p_derived, p_atomic, p_key, p_admin);
END
$$;""",
    """
CREATE OR REPLACE FUNCTION reserve_tokens(
    p_tenant text, p_key uuid, p_work text, p_limit int, p_want int, p_returned int, p_returned_slot bigint,
    p_breach boolean)
RETURNS TABLE (granted int, slot bigint, slot_ends_ms int, retry_ms int)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now_ms bigint;
    v_slot bigint;
    v_slots bigint[];
    v_counts int[];
    v_used int;
BEGIN
    PERFORM set_scope(p_tenant, '', '', NULL, '');
    INSERT INTO rate_windows (tenant_id, key_id, work, slots, counts)
    VALUES (p_tenant, p_key, p_work, '{}', '{}') ON CONFLICT DO NOTHING;
    SELECT w.slots, w.counts INTO v_slots, v_counts FROM rate_windows w
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work FOR UPDATE;
    -- Read after the lock: slots are granted in the order of this clock.
    v_now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_slot := v_now_ms / 2000;

    SELECT coalesce(array_agg(s.slot ORDER BY s.slot), '{}'), coalesce(array_agg(s.left_over ORDER BY s.slot), '{}'),
           coalesce(sum(s.left_over), 0)
    INTO v_slots, v_counts, v_used
    FROM (SELECT u.slot, u.count - CASE WHEN u.slot = p_returned_slot THEN least(p_returned, u.count) ELSE 0 END
                 AS left_over
          FROM unnest(v_slots, v_counts) AS u (slot, count)) s
    WHERE s.slot > v_slot - 31 AND s.left_over > 0;

    granted := greatest(0, least(p_want, p_limit - v_used));
    IF granted > 0 THEN
        IF v_slots[cardinality(v_slots)] = v_slot THEN
            v_counts[cardinality(v_counts)] := v_counts[cardinality(v_counts)] + granted;
        ELSE
            v_slots := v_slots || v_slot;
            v_counts := v_counts || granted;
        END IF;
    END IF;
    IF granted = 0 AND p_breach THEN
        PERFORM record_event('quota_breach', p_key::text, jsonb_build_object('work', p_work, 'limit', p_limit));
    END IF;
    UPDATE rate_windows w SET slots = v_slots, counts = v_counts
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work;

    slot := v_slot;
    slot_ends_ms := (v_slot + 1) * 2000 - v_now_ms;
    retry_ms := CASE WHEN granted > 0 THEN 0
                     ELSE greatest(1, (coalesce(v_slots[1], v_slot) + 31) * 2000 - v_now_ms) END;
    RETURN NEXT;
END
$$;""",
    """
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
           CASE WHEN n.norm IS NULL AND i.suppression > 0 THEN 'hidden'
                WHEN x.found IS NOT NULL THEN 'found'
                WHEN n.norm IS NULL THEN 'unknown'
                WHEN cardinality(a.ids) > 1 THEN 'ambiguous'
                ELSE 'absent' END,
           CASE WHEN x.found IS NULL AND cardinality(a.ids) > 1 THEN a.ids END
    FROM json_to_recordset(p_names) AS n(ref int, entity_id uuid, norm text)
    LEFT JOIN LATERAL (
        SELECT coalesce(e.merged_into, e.entity_id) AS id, e.suppression
        FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = n.norm
        OFFSET 0
    ) c ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(x.merged_into, x.entity_id) AS id, x.suppression
        FROM (SELECT e.merged_into, e.entity_id, e.project_id, e.suppression FROM graph_entities e
              WHERE n.norm IS NULL AND e.tenant_id = p_tenant AND e.entity_id = n.entity_id OFFSET 0) x
        WHERE x.project_id = p_project
    ) i ON true
    LEFT JOIN LATERAL (
        -- What is suppressed must not make a name ambiguous for those who cannot see it.
        SELECT array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression = 0) AS ids,
               (array_agg(DISTINCT s.entity_id) FILTER (WHERE s.suppression > 0))[1] AS hidden
        FROM (
            SELECT a.entity_id, a.suppression FROM graph_entity_aliases a
            WHERE (c.id IS NULL OR c.suppression > 0) AND a.tenant_id = p_tenant AND a.project_id = p_project
              AND a.alias_norm BETWEEN n.norm AND n.norm
            ORDER BY a.alias_norm OFFSET 0
        ) s
    ) a ON true
    CROSS JOIN LATERAL (
        -- A name that can be seen beats one that cannot, so that reading and writing mean the same.
        SELECT CASE WHEN c.suppression = 0 THEN c.id WHEN n.norm IS NULL THEN i.id
                    WHEN cardinality(a.ids) = 1 THEN a.ids[1]
                    WHEN cardinality(a.ids) > 1 THEN NULL
                    ELSE coalesce(c.id, a.hidden) END AS found
    ) x;
END
$$;""",
    """
CREATE OR REPLACE FUNCTION retract_facts(
    p_facts uuid[], p_subject uuid, p_predicate uuid, p_scope text, p_reason text, p_admin boolean,
    p_key text DEFAULT '')
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
    PERFORM FROM (SELECT f.fact_id, f.suppression, f.subject_entity_id FROM graph_facts f
                  WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) ORDER BY f.fact_id FOR UPDATE) f
    WHERE f.subject_entity_id <> ALL (v_subjects) OR f.suppression > 0;
    IF FOUND THEN
        RAISE EXCEPTION 'a subject was merged, or a fact hidden, meanwhile' USING ERRCODE = '40001';
    END IF;
    v_now := clock_timestamp();
    PERFORM take_back(v_tenant, v_project, v_agent, array_agg(f.fact_id), 'retracted', p_reason,
                      array_agg(v_now))
    FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.retracted_at IS NULL;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.retracted_at = v_now) THEN
        PERFORM record_event('fact_write', p_key, jsonb_build_object(
            'action', 'retract', 'fact_ids', (
                SELECT jsonb_agg(f.fact_id) FROM graph_facts f
                WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND f.retracted_at = v_now)));
    END IF;
    RETURN QUERY
    SELECT f.fact_id, CASE WHEN f.retracted_at < v_now THEN 'already_retracted' END
    FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
    UNION ALL
    SELECT u.fact_id, 'garden_forbidden' FROM unnest(v_refused) u(fact_id);
END
$$;""",
    """
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
              AND f.suppression = 0
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
    """
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
            UPDATE entity_edges x
            SET confidence = 0, retracted_at = p_moments[i],
                decayed_at = CASE p_kind WHEN 'decayed' THEN p_moments[i] ELSE x.decayed_at END
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
    """
CREATE OR REPLACE FUNCTION write_facts(
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean,
    p_key text DEFAULT '', p_admin boolean DEFAULT false)
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
    v_hashes bytea[];
    v_hashed int[];
    v_cycles int[] := '{}';
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
            WHEN 'entity_tombstoned' THEN CASE WHEN h.subject > 0 THEN 'subject' ELSE 'object' END
            ELSE CASE WHEN v_states[d.s] IN ('unknown', 'ambiguous', 'hidden') THEN 'subject' ELSE 'object' END
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
        SELECT CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.s]) END AS subject,
               CASE WHEN p_admin THEN (
                   SELECT hidden_level(e.erased_scopes, e.held_scopes, d.scope) FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.o]) END AS object
    ) h
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN d.scope = 'agent_private' AND v_agent = '' THEN 'agent_required'
            WHEN h.subject > 0 OR h.object > 0 THEN 'entity_tombstoned'
            WHEN v_states[d.s] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN v_states[d.s] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN v_states[d.o] IN ('unknown', 'hidden') THEN 'entity_not_found'
            WHEN v_states[d.o] = 'ambiguous' THEN 'entity_ambiguous'
            WHEN r.predicate_id IS NULL AND r.norm IS NULL THEN 'predicate_not_found'
            WHEN r.status = 'deprecated' THEN 'predicate_deprecated'
            WHEN c.missing IS NOT NULL THEN 'note_not_found'
            WHEN d.valid_from IS NULL AND d.valid_to <= v_now THEN 'valid_to_too_early'
            WHEN d.garden_id IS NOT NULL AND d.garden_id <> ALL (v_gardens) THEN 'garden_forbidden'
        END AS refused
    ) f;

    -- A fact that gives its own start could have been cited beforehand: it must not be derived from itself.
    IF json_array_length(p_derived) > 0 THEN
        SELECT array_agg(d.idx), array_agg(hash_fact(
                   d.confidence, coalesce(s.canonical_norm, n.norm), coalesce(r.canonical, d.predicate), d.scope,
                   d.source, d.valid_from, CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
                   CASE WHEN d.o IS NULL THEN d.value_json ELSE to_json(coalesce(o.canonical_norm, m.norm))::text END))
        INTO v_hashed, v_hashes
        FROM unnest(v_drafts) d
        JOIN resolve_predicates(v_tenant, v_project, p_predicates) r ON r.ref = d.p
        JOIN json_to_recordset(p_entities) AS n(ref int, norm text) ON n.ref = d.s
        LEFT JOIN json_to_recordset(p_entities) AS m(ref int, norm text) ON m.ref = d.o
        LEFT JOIN LATERAL (
            -- Of what is hidden the name as it was said, as if it were new.
            SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.s] OFFSET 0) s ON true
        LEFT JOIN LATERAL (
            SELECT CASE WHEN e.suppression = 0 THEN e.canonical_norm END AS canonical_norm FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = v_entities[d.o] OFFSET 0) o ON true
        WHERE d.refused IS NULL AND d.valid_from IS NOT NULL;
        IF v_hashed IS NOT NULL THEN
            -- Two that cite each other must not be written at the same time, each unaware of the other.
            PERFORM FROM tenants t WHERE t.tenant_id = v_tenant FOR NO KEY UPDATE;
        END IF;
        v_cycles := find_cycles(v_tenant, v_project, v_hashed, v_hashes, p_derived);
    END IF;
    IF cardinality(v_cycles) > 0 THEN
        SELECT array_agg(ROW(
            d.idx, d.fact_id, d.s, d.p, d.o, NULL, NULL, NULL, d.predicate, d.value, d.value_type, d.value_json,
            d.object_hash, d.scope, d.owner_key, d.garden_id, d.confidence, d.source, d.source_trust, d.hlc,
            d.valid_from, d.valid_to, d.timed, NULL, NULL, NULL, NULL, d.note_id,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'provenance_cycle_detected' ELSE d.refused END,
            CASE WHEN d.idx = ANY (v_cycles) THEN 'derived_from' ELSE d.field END)::fact_draft ORDER BY d.idx)
        INTO v_drafts FROM unnest(v_drafts) d;
    END IF;
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
                   stricter_level(s.hidden, o.hidden) AS hidden
            FROM unnest(v_good) d
            CROSS JOIN LATERAL (
                SELECT p.predicate_id, p.status, p.cardinality FROM graph_predicates p
                WHERE p.tenant_id = v_tenant AND p.predicate_id = v_predicates[d.p] AND p.status <> 'deprecated'
                OFFSET 0
            ) p
            CROSS JOIN LATERAL (
                SELECT hidden_level(s.erased_scopes, s.held_scopes, d.scope) AS hidden FROM graph_entities s
                WHERE s.tenant_id = v_tenant AND s.entity_id = v_entities[d.s] AND s.merged_into IS NULL
                OFFSET 0
            ) s
            LEFT JOIN LATERAL (
                SELECT hidden_level(o.erased_scopes, o.held_scopes, d.scope) AS hidden, o.merged_into, true AS found
                FROM graph_entities o
                WHERE o.tenant_id = v_tenant AND o.entity_id = v_entities[d.o]
                OFFSET 0
            ) o ON true
            WHERE o.merged_into IS NULL AND (d.o IS NULL OR o.found) AND (
                d.valid_to IS NULL OR d.valid_from IS NOT NULL
                OR d.valid_to > v_now + (d.idx - v_good[1].idx) * interval '1 microsecond')
          ) u
        ) t;
        IF cardinality(v_placed) IS DISTINCT FROM cardinality(v_good)
           OR (p_admin AND EXISTS (SELECT FROM unnest(v_placed) d WHERE d.suppression > 0)) THEN
            RAISE EXCEPTION 'a name changed its meaning while this was being written' USING ERRCODE = '40001';
        END IF;
        v_steps := place_facts(v_tenant, v_project, v_agent, v_placed, v_values, v_jsons, p_evidence, p_derived);
        INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
        SELECT v_tenant, make_id(), v_project, 'fact_write', p_key, v_agent, jsonb_build_object(
                   'action', 'assert', 'created', count(*) FILTER (WHERE w.is_new),
                   'reused', count(*) FILTER (WHERE NOT w.is_new), 'fact_ids', jsonb_agg(w.fact_id)), v_now
        FROM unnest(v_steps) w HAVING p_key IS NOT NULL;
    END IF;

    -- 5. What came of each, shown to its writer whatever a policy hides from others. What was born hidden is shown as
    -- it would be if nobody had ever used the name.
    RETURN QUERY
    SELECT d.idx, d.refused, CASE WHEN d.refused IS NOT NULL THEN d.field END,
           CASE WHEN d.refused = 'entity_ambiguous' THEN ARRAY(
               SELECT jsonb_array_elements_text(
                   v_ambiguous -> (CASE d.field WHEN 'subject' THEN d.s ELSE d.o END)::text))::uuid[] END,
           CASE WHEN f.hidden OR f.fact_id = d.fact_id THEN 'created' WHEN f.fact_id IS NOT NULL THEN 'reused' END,
           -- Of what is suppressed no trace.
           -- Looked up in an order that only the right index has, and put in order afterwards.
           CASE WHEN f.hidden THEN '{}' ELSE coalesce((
               SELECT array_agg(u.from_fact_id ORDER BY u.supersession_id) FROM (
                   SELECT x.from_fact_id, x.supersession_id FROM graph_fact_supersessions x
                   WHERE x.tenant_id = v_tenant AND x.to_fact_id BETWEEN d.fact_id AND d.fact_id
                     AND x.created_at = f.created_at AND x.suppression = 0
                   ORDER BY x.to_fact_id OFFSET 0) u), '{}') END,
           coalesce((
               SELECT array_agg(u.conflict_id ORDER BY u.conflict_id) FROM (
                   SELECT x.conflict_id FROM fact_conflicts x
                   WHERE x.tenant_id = v_tenant AND x.fact_b BETWEEN f.fact_id AND f.fact_id
                     AND x.detected_at >= v_now
                   ORDER BY x.fact_b OFFSET 0) u), '{}'),
           CASE WHEN f.hidden THEN d.fact_id ELSE f.fact_id END,
           coalesce(s.decoy_id, s.entity_id), coalesce(s.shown, s.canonical),
           CASE WHEN s.shown IS NULL THEN s.kind ELSE s.said END,
           p.predicate_id, p.canonical, p.status, p.cardinality,
           coalesce(o.decoy_id, o.entity_id), coalesce(o.shown, o.canonical),
           CASE WHEN o.shown IS NULL THEN o.kind ELSE o.said END,
           CASE WHEN f.hidden THEN d.value ELSE f.object_value END,
           CASE WHEN f.hidden THEN d.value_type ELSE f.value_type END, f.scope, f.garden_id, f.agent_id,
           CASE WHEN f.hidden THEN d.source ELSE f.source END,
           CASE WHEN f.hidden THEN d.source_trust ELSE f.source_trust END,
           CASE WHEN f.hidden THEN d.confidence ELSE f.confidence END,
           CASE WHEN f.hidden THEN coalesce(d.valid_from, m.moment) ELSE f.valid_from END,
           CASE WHEN f.hidden THEN d.valid_to ELSE f.valid_to END,
           CASE WHEN f.hidden THEN m.moment ELSE f.created_at END,
           CASE WHEN NOT f.hidden THEN f.closed_at WHEN d.valid_to IS NOT NULL THEN m.moment END, f.retracted_at,
           coalesce(
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_a = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               (SELECT true FROM fact_conflicts x
                WHERE x.tenant_id = v_tenant AND x.fact_b = f.fact_id AND x.status = 'open' AND x.suppression = 0
                LIMIT 1),
               false),
           CASE WHEN f.hidden THEN ARRAY(
               SELECT v.note_id FROM json_to_recordset(p_evidence) AS v(idx int, at int, note_id uuid)
               WHERE v.idx = d.idx ORDER BY v.at)
           ELSE ARRAY(
               SELECT x.note_id FROM graph_fact_evidence x
               WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id AND x.suppression = 0
               ORDER BY x.created_at, x.evidence_id) END,
           CASE WHEN f.hidden THEN ARRAY(
               SELECT DISTINCT v.hash FROM json_to_recordset(p_derived) AS v(idx int, hash text)
               WHERE v.idx = d.idx ORDER BY v.hash)
           ELSE ARRAY(
               SELECT encode(x.source_hash, 'hex') FROM fact_derivations x
               WHERE x.tenant_id = v_tenant AND x.fact_id = f.fact_id AND x.kind = 'derived'
               ORDER BY x.source_hash) END,
           encode(CASE WHEN f.hidden THEN hash_fact(
               d.confidence, coalesce(s.norm, s.canonical_norm), p.canonical, d.scope, d.source,
               coalesce(d.valid_from, m.moment), CASE WHEN d.o IS NULL THEN d.value_type ELSE 'ref' END,
               CASE WHEN d.o IS NULL THEN d.value_json
                    ELSE to_json(coalesce(o.norm, o.canonical_norm))::text END) ELSE f.fact_hash END, 'hex'),
           CASE WHEN f.hidden THEN 1 ELSE f.mentions END
    FROM unnest(v_drafts) d
    CROSS JOIN LATERAL (SELECT v_now + (d.idx - v_good[1].idx) * interval '1 microsecond' AS moment) m
    LEFT JOIN unnest(v_steps) w ON w.idx = d.idx
    LEFT JOIN LATERAL (
        -- An order that only the primary key has; see place_facts.
        SELECT f.*, f.suppression > 0 AS hidden FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id BETWEEN w.fact_id AND w.fact_id
        ORDER BY f.fact_id LIMIT 1
    ) f ON true
    LEFT JOIN LATERAL (
        SELECT e.*, n.canonical AS shown, n.kind AS said, n.norm FROM graph_entities e
        LEFT JOIN json_to_recordset(p_entities) AS n(ref int, canonical text, kind text, norm text)
            ON e.suppression > 0 AND n.ref = d.s
        WHERE e.tenant_id = v_tenant AND e.entity_id = f.subject_entity_id OFFSET 0
    ) s ON true
    LEFT JOIN LATERAL (
        SELECT e.*, n.canonical AS shown, n.kind AS said, n.norm FROM graph_entities e
        LEFT JOIN json_to_recordset(p_entities) AS n(ref int, canonical text, kind text, norm text)
            ON e.suppression > 0 AND n.ref = d.o
        WHERE e.tenant_id = v_tenant AND e.entity_id = f.object_entity_id OFFSET 0
    ) o ON true
    LEFT JOIN LATERAL (
        SELECT p.* FROM graph_predicates p WHERE p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id OFFSET 0
    ) p ON true
    ORDER BY d.idx;
END
$$;""",
)
OLD_FUNCTIONS = (
    """
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
    """
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
    """
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
    """
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
    """
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
    """
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
    """
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
    """
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
    """
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
    """
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
    """
CREATE OR REPLACE FUNCTION reserve_tokens(
    p_tenant text, p_key uuid, p_work text, p_limit int, p_want int, p_returned int, p_returned_slot bigint)
RETURNS TABLE (granted int, slot bigint, slot_ends_ms int, retry_ms int)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now_ms bigint;
    v_slot bigint;
    v_slots bigint[];
    v_counts int[];
    v_used int;
BEGIN
    PERFORM set_scope(p_tenant, '', '', NULL, '');
    INSERT INTO rate_windows (tenant_id, key_id, work, slots, counts)
    VALUES (p_tenant, p_key, p_work, '{}', '{}') ON CONFLICT DO NOTHING;
    SELECT w.slots, w.counts INTO v_slots, v_counts FROM rate_windows w
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work FOR UPDATE;
    -- Read after the lock: slots are granted in the order of this clock.
    v_now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_slot := v_now_ms / 2000;

    SELECT coalesce(array_agg(s.slot ORDER BY s.slot), '{}'), coalesce(array_agg(s.left_over ORDER BY s.slot), '{}'),
           coalesce(sum(s.left_over), 0)
    INTO v_slots, v_counts, v_used
    FROM (SELECT u.slot, u.count - CASE WHEN u.slot = p_returned_slot THEN least(p_returned, u.count) ELSE 0 END
                 AS left_over
          FROM unnest(v_slots, v_counts) AS u (slot, count)) s
    WHERE s.slot > v_slot - 31 AND s.left_over > 0;

    granted := greatest(0, least(p_want, p_limit - v_used));
    IF granted > 0 THEN
        IF v_slots[cardinality(v_slots)] = v_slot THEN
            v_counts[cardinality(v_counts)] := v_counts[cardinality(v_counts)] + granted;
        ELSE
            v_slots := v_slots || v_slot;
            v_counts := v_counts || granted;
        END IF;
    END IF;
    UPDATE rate_windows w SET slots = v_slots, counts = v_counts
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work;

    slot := v_slot;
    slot_ends_ms := (v_slot + 1) * 2000 - v_now_ms;
    retry_ms := CASE WHEN granted > 0 THEN 0
                     ELSE greatest(1, (coalesce(v_slots[1], v_slot) + 31) * 2000 - v_now_ms) END;
    RETURN NEXT;
END
$$;""",
    """
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
    """
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
    """
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
    """
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
    """
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
)
SIGNATURES = (
    "sweep_decay(timestamptz, boolean, uuid, int)",
    "resolve_conflict(uuid, uuid, text, text, boolean)",
    "store_receipt(uuid, uuid, text, bytea, bytea, timestamptz)",
    "erase_entity(uuid, uuid)",
    "revoke_tombstone(uuid, uuid, text, text)",
    "issue_tombstone(uuid, json, text[], text, boolean, boolean, timestamptz, boolean, text, uuid)",
    "schedule_decay(timestamptz)",
    "schedule_seals()",
    "seal_audit(int)",
    "refresh_trust(text, text[], double precision, double precision, uuid, int)",
    "judge_sources(text[])",
    "find_cycles(text, text, int[], bytea[], json)",
    "check_as_of(text, text, timestamptz)",
    "find_residue(text, uuid[], text, text)",
    "find_hold(text, text, uuid, text[], uuid[], uuid[])",
    "names_any(text, uuid[])",
    "is_held(text, uuid)",
    "find_doomed(text, text, uuid, text[])",
    "says(jsonb, text)",
    "link_holds(text, text)",
    "link_mentions(text, text, uuid, text[])",
    "name_pattern(text, uuid)",
    "settle_entity(text, text, text, uuid)",
    "settle_notes(text, text, uuid[])",
    "settle_facts(text, text, text, uuid[])",
    "weigh_fact(text, text, uuid, double precision, timestamptz, int, boolean)",
    "record_event(text, text, jsonb)",
    "stricter_level(smallint, smallint)",
    "hidden_level(text[], text[], text)",
)
# Functions whose arguments or answers changed: as they were, and as they are.
OLD_SIGNATURES = (
    "configure_predicate(uuid, text, text, boolean)",
    "end_fact(uuid, timestamptz, boolean)",
    "fold_beliefs(text, text, text, uuid, uuid, timestamptz)",
    "put_entity(uuid, text, text, text, json)",
    "put_facts(text, text, text, uuid[], text, json, json, json, json, json, boolean)",
    "reserve_tokens(text, uuid, text, int, int, int, bigint)",
    "retract_facts(uuid[], uuid, uuid, text, text, boolean)",
    "write_facts(json, json, json, json, json, boolean)",
)
NEW_SIGNATURES = (
    "configure_predicate(uuid, text, text, boolean, text)",
    "end_fact(uuid, timestamptz, boolean, text)",
    "fold_beliefs(text, text, text, uuid[], uuid, uuid, timestamptz)",
    "put_entity(uuid, text, text, text, json)",
    "put_facts(text, text, text, uuid[], text, json, json, json, json, json, boolean, text, boolean)",
    "reserve_tokens(text, uuid, text, int, int, int, bigint, boolean)",
    "retract_facts(uuid[], uuid, uuid, text, text, boolean, text)",
    "write_facts(json, json, json, json, json, boolean, text, boolean)",
)


def _set_rule(table: str, rule: Rule) -> None:
    op.execute(f"DROP POLICY {table}_app ON {table}")
    op.execute(f"DROP POLICY {table}_owner ON {table}")
    enable_tenant_rls(op.execute, table, rule=rule, grants="SELECT")


def _grant(signature: str) -> None:
    op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def upgrade() -> None:
    execute_literal(TABLES)
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    for table, (_, rule) in CHANGED_RULES.items():
        _set_rule(table, rule)
    for signature in OLD_SIGNATURES:
        op.execute(f"DROP FUNCTION {signature}")
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in (*SIGNATURES, *NEW_SIGNATURES):
        _grant(signature)


def downgrade() -> None:
    for signature in (*NEW_SIGNATURES, *SIGNATURES):
        op.execute(f"DROP FUNCTION {signature}")
    for table, (rule, _) in CHANGED_RULES.items():
        _set_rule(table, rule)
    execute_literal(UNDO)
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    for signature in OLD_SIGNATURES:
        _grant(signature)
