"""Objects: branches, registries of types, versioned objects and relationships with their heads."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = """
ALTER TABLE graph_entities ADD COLUMN object_canonical_id UUID;
COMMENT ON COLUMN graph_entities.object_canonical_id IS 'the object that stands for it';
CREATE INDEX graph_entities_object_idx ON graph_entities (tenant_id, object_canonical_id)
    WHERE object_canonical_id IS NOT NULL;
ALTER TABLE audit_log
    DROP CONSTRAINT audit_log_event_type_check,
    ADD CONSTRAINT audit_log_event_type_check
        CHECK (event_type IN ('fact_write', 'fact_read', 'key_issue', 'key_revoke', 'key_rotation',
            'quarantine_admit', 'quarantine_release', 'quota_breach', 'admin_action', 'tombstone_issued',
            'tombstone_revoked', 'rtbf_legal_hold_issued', 'erasure_completed', 'object_write'));
ALTER TABLE lexical_statistics
    DROP CONSTRAINT lexical_statistics_kind_check,
    ADD CONSTRAINT lexical_statistics_kind_check CHECK (kind IN ('note', 'fact', 'object'));
ALTER TABLE lexical_frequencies
    DROP CONSTRAINT lexical_frequencies_kind_check,
    ADD CONSTRAINT lexical_frequencies_kind_check CHECK (kind IN ('note', 'fact', 'object'));
CREATE TABLE branches (
    tenant_id TEXT NOT NULL,
    branch_id UUID NOT NULL,
    project_id TEXT,
    name TEXT NOT NULL,
    parent_branch_id UUID,
    created_from_branch_head_at TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT branches_pkey PRIMARY KEY (tenant_id, branch_id),
    CONSTRAINT branches_tenant_id_parent_branch_id_fkey FOREIGN KEY(tenant_id, parent_branch_id)
        REFERENCES branches (tenant_id, branch_id)
);
COMMENT ON COLUMN branches.project_id IS 'NULL: of objects that belong to no project';
CREATE UNIQUE INDEX branches_name_key ON branches (tenant_id, project_id, name) NULLS NOT DISTINCT;
CREATE TABLE object_type_schemas (
    tenant_id TEXT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    description TEXT,
    json_schema JSONB,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    embedding_policy TEXT DEFAULT 'optional' NOT NULL,
    embedding_relevant_paths TEXT[],
    fts_enabled BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT object_type_schemas_pkey PRIMARY KEY (tenant_id, type, version),
    CONSTRAINT object_type_schemas_status_check CHECK (status IN ('active', 'retired')),
    CONSTRAINT object_type_schemas_embedding_policy_check CHECK (embedding_policy IN
        ('required', 'optional', 'disabled'))
);
COMMENT ON COLUMN object_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN object_type_schemas.embedding_relevant_paths IS 'JSON Pointers; NULL: all properties';
CREATE UNIQUE INDEX object_type_schemas_active_key ON object_type_schemas (tenant_id, type) WHERE status = 'active';
CREATE TABLE relationship_type_schemas (
    tenant_id TEXT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    description TEXT,
    json_schema JSONB,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    allowed_src_types TEXT[] NOT NULL,
    allowed_dst_types TEXT[] NOT NULL,
    multiplicity_src TEXT NOT NULL,
    multiplicity_dst TEXT NOT NULL,
    base_weight DOUBLE PRECISION,
    allow_neighbor BOOLEAN DEFAULT true NOT NULL,
    max_depth_allowed INTEGER,
    reciprocal_boost DOUBLE PRECISION,
    CONSTRAINT relationship_type_schemas_pkey PRIMARY KEY (tenant_id, type, version),
    CONSTRAINT relationship_type_schemas_status_check CHECK (status IN ('active', 'retired')),
    CONSTRAINT relationship_type_schemas_multiplicity_src_check CHECK (multiplicity_src IN ('one', 'many')),
    CONSTRAINT relationship_type_schemas_multiplicity_dst_check CHECK (multiplicity_dst IN ('one', 'many'))
);
COMMENT ON COLUMN relationship_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN relationship_type_schemas.allowed_src_types IS 'none named: any';
COMMENT ON COLUMN relationship_type_schemas.multiplicity_src IS 'one: at most one from an object';
COMMENT ON COLUMN relationship_type_schemas.multiplicity_dst IS 'one: at most one to an object';
CREATE UNIQUE INDEX relationship_type_schemas_active_key ON relationship_type_schemas (tenant_id, type)
        WHERE status = 'active';
CREATE TABLE global_object_type_schemas (
    type TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    description TEXT,
    json_schema JSONB,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    embedding_policy TEXT DEFAULT 'optional' NOT NULL,
    embedding_relevant_paths TEXT[],
    fts_enabled BOOLEAN DEFAULT true NOT NULL,
    CONSTRAINT global_object_type_schemas_pkey PRIMARY KEY (type, version),
    CONSTRAINT global_object_type_schemas_status_check CHECK (status IN ('active', 'retired')),
    CONSTRAINT global_object_type_schemas_embedding_policy_check CHECK (embedding_policy IN
        ('required', 'optional', 'disabled'))
);
COMMENT ON COLUMN global_object_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN global_object_type_schemas.embedding_relevant_paths IS 'JSON Pointers; NULL: all properties';
CREATE UNIQUE INDEX global_object_type_schemas_active_key ON global_object_type_schemas (type)
        WHERE status = 'active';
CREATE TABLE global_relationship_type_schemas (
    type TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    status TEXT NOT NULL,
    description TEXT,
    json_schema JSONB,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    allowed_src_types TEXT[] NOT NULL,
    allowed_dst_types TEXT[] NOT NULL,
    multiplicity_src TEXT NOT NULL,
    multiplicity_dst TEXT NOT NULL,
    base_weight DOUBLE PRECISION,
    allow_neighbor BOOLEAN DEFAULT true NOT NULL,
    max_depth_allowed INTEGER,
    reciprocal_boost DOUBLE PRECISION,
    CONSTRAINT global_relationship_type_schemas_pkey PRIMARY KEY (type, version),
    CONSTRAINT global_relationship_type_schemas_status_check CHECK (status IN ('active', 'retired')),
    CONSTRAINT global_relationship_type_schemas_multiplicity_src_check CHECK (multiplicity_src IN ('one', 'many')),
    CONSTRAINT global_relationship_type_schemas_multiplicity_dst_check CHECK (multiplicity_dst IN ('one', 'many'))
);
COMMENT ON COLUMN global_relationship_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN global_relationship_type_schemas.allowed_src_types IS 'none named: any';
COMMENT ON COLUMN global_relationship_type_schemas.multiplicity_src IS 'one: at most one from an object';
COMMENT ON COLUMN global_relationship_type_schemas.multiplicity_dst IS 'one: at most one to an object';
CREATE UNIQUE INDEX global_relationship_type_schemas_active_key ON global_relationship_type_schemas (type)
        WHERE status = 'active';
CREATE TABLE graph_objects (
    tenant_id TEXT NOT NULL,
    branch_id UUID NOT NULL,
    canonical_id UUID NOT NULL,
    version_id UUID NOT NULL,
    version INTEGER NOT NULL,
    project_id TEXT,
    type TEXT COLLATE "C" NOT NULL,
    subtype TEXT,
    key TEXT COLLATE "C",
    title TEXT,
    status TEXT,
    labels TEXT[] NOT NULL,
    effective_from TIMESTAMP WITH TIME ZONE,
    effective_to TIMESTAMP WITH TIME ZONE,
    properties JSONB NOT NULL,
    evidence JSONB,
    content_hash BYTEA NOT NULL,
    schema_version INTEGER,
    deleted_at TIMESTAMP WITH TIME ZONE,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    terms TSVECTOR DEFAULT ''::tsvector NOT NULL,
    terms_length INTEGER GENERATED ALWAYS AS (count_terms(terms)) STORED,
    embed_text TEXT,
    CONSTRAINT graph_objects_pkey PRIMARY KEY (tenant_id, canonical_id, branch_id)
);
COMMENT ON COLUMN graph_objects.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_objects.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_objects.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_objects.created_at IS 'of its first version';
COMMENT ON COLUMN graph_objects.updated_at IS 'of this one';
COMMENT ON COLUMN graph_objects.embed_text IS 'what is embedded of it; NULL: it is not to be embedded';
CREATE UNIQUE INDEX graph_objects_key_key ON graph_objects (tenant_id, branch_id, type, key)
        WHERE key IS NOT NULL AND deleted_at IS NULL AND suppression = 0;
CREATE INDEX graph_objects_labels_idx ON graph_objects USING gin (labels);
CREATE INDEX graph_objects_list_idx ON graph_objects (tenant_id, branch_id, type, canonical_id);
CREATE INDEX graph_objects_properties_idx ON graph_objects USING gin (properties jsonb_path_ops);
CREATE INDEX graph_objects_terms_idx ON graph_objects USING gin
        (lexical_keys(tenant_id, COALESCE(project_id, ''::text), tsvector_to_array(terms))) WITH (fastupdate = off);
CREATE TABLE graph_object_versions (
    tenant_id TEXT NOT NULL,
    branch_id UUID NOT NULL,
    canonical_id UUID NOT NULL,
    version_id UUID NOT NULL,
    version INTEGER NOT NULL,
    project_id TEXT,
    type TEXT COLLATE "C" NOT NULL,
    subtype TEXT,
    key TEXT COLLATE "C",
    title TEXT,
    status TEXT,
    labels TEXT[] NOT NULL,
    effective_from TIMESTAMP WITH TIME ZONE,
    effective_to TIMESTAMP WITH TIME ZONE,
    properties JSONB NOT NULL,
    evidence JSONB,
    content_hash BYTEA NOT NULL,
    schema_version INTEGER,
    deleted_at TIMESTAMP WITH TIME ZONE,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    supersedes_id UUID,
    change_summary JSONB,
    written_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_object_versions_pkey PRIMARY KEY (tenant_id, version_id),
    CONSTRAINT graph_object_versions_number_key UNIQUE (tenant_id, canonical_id, branch_id, version)
);
COMMENT ON COLUMN graph_object_versions.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_object_versions.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_object_versions.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_object_versions.change_summary IS 'what changed since the version before';
COMMENT ON COLUMN graph_object_versions.written_by IS 'the agent';
CREATE TABLE graph_relationships (
    tenant_id TEXT NOT NULL,
    branch_id UUID NOT NULL,
    canonical_id UUID NOT NULL,
    version_id UUID NOT NULL,
    version INTEGER NOT NULL,
    project_id TEXT,
    type TEXT COLLATE "C" NOT NULL,
    src_id UUID NOT NULL,
    dst_id UUID NOT NULL,
    weight DOUBLE PRECISION,
    role_src TEXT,
    role_dst TEXT,
    valid_from TIMESTAMP WITH TIME ZONE,
    valid_to TIMESTAMP WITH TIME ZONE,
    properties JSONB NOT NULL,
    evidence JSONB,
    content_hash BYTEA NOT NULL,
    schema_version INTEGER,
    deleted_at TIMESTAMP WITH TIME ZONE,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    one_src BOOLEAN NOT NULL,
    one_dst BOOLEAN NOT NULL,
    deleted_with UUID,
    CONSTRAINT graph_relationships_pkey PRIMARY KEY (tenant_id, canonical_id, branch_id)
);
COMMENT ON COLUMN graph_relationships.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_relationships.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_relationships.src_id IS 'canonical, so that it survives new versions';
COMMENT ON COLUMN graph_relationships.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_relationships.one_src IS 'its type allows one such relationship from an object';
COMMENT ON COLUMN graph_relationships.one_dst IS 'and one to an object';
COMMENT ON COLUMN graph_relationships.deleted_with IS 'the object whose deletion took it along';
CREATE INDEX graph_relationships_gone_dst_idx ON graph_relationships (tenant_id, dst_id)
        WHERE deleted_with IS NOT NULL;
CREATE INDEX graph_relationships_gone_src_idx ON graph_relationships (tenant_id, src_id)
        WHERE deleted_with IS NOT NULL;
CREATE INDEX graph_relationships_in_idx ON graph_relationships
        (tenant_id, branch_id, dst_id, weight DESC NULLS LAST, canonical_id DESC)
        INCLUDE (src_id, type, valid_from, valid_to, project_id, suppression) WHERE deleted_at IS NULL;
CREATE INDEX graph_relationships_list_idx ON graph_relationships (tenant_id, branch_id, type, canonical_id);
CREATE UNIQUE INDEX graph_relationships_one_dst_key ON graph_relationships (tenant_id, branch_id, type, dst_id)
        WHERE one_dst AND deleted_at IS NULL AND suppression = 0;
CREATE UNIQUE INDEX graph_relationships_one_src_key ON graph_relationships (tenant_id, branch_id, type, src_id)
        WHERE one_src AND deleted_at IS NULL AND suppression = 0;
CREATE INDEX graph_relationships_out_idx ON graph_relationships
        (tenant_id, branch_id, src_id, weight DESC NULLS LAST, canonical_id DESC)
        INCLUDE (dst_id, type, valid_from, valid_to, project_id, suppression) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX graph_relationships_triple_key ON graph_relationships
        (tenant_id, branch_id, src_id, type, dst_id) WHERE deleted_at IS NULL AND suppression = 0;
CREATE TABLE graph_relationship_versions (
    tenant_id TEXT NOT NULL,
    branch_id UUID NOT NULL,
    canonical_id UUID NOT NULL,
    version_id UUID NOT NULL,
    version INTEGER NOT NULL,
    project_id TEXT,
    type TEXT COLLATE "C" NOT NULL,
    src_id UUID NOT NULL,
    dst_id UUID NOT NULL,
    weight DOUBLE PRECISION,
    role_src TEXT,
    role_dst TEXT,
    valid_from TIMESTAMP WITH TIME ZONE,
    valid_to TIMESTAMP WITH TIME ZONE,
    properties JSONB NOT NULL,
    evidence JSONB,
    content_hash BYTEA NOT NULL,
    schema_version INTEGER,
    deleted_at TIMESTAMP WITH TIME ZONE,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    supersedes_id UUID,
    change_summary JSONB,
    written_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT graph_relationship_versions_pkey PRIMARY KEY (tenant_id, version_id),
    CONSTRAINT graph_relationship_versions_number_key UNIQUE (tenant_id, canonical_id, branch_id, version)
);
COMMENT ON COLUMN graph_relationship_versions.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_relationship_versions.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_relationship_versions.src_id IS 'canonical, so that it survives new versions';
COMMENT ON COLUMN graph_relationship_versions.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_relationship_versions.change_summary IS 'what changed since the version before';
COMMENT ON COLUMN graph_relationship_versions.written_by IS 'the agent';
CREATE TABLE object_entity_mentions (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    canonical_id UUID NOT NULL,
    entity_id UUID NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT object_entity_mentions_pkey PRIMARY KEY (tenant_id, canonical_id, entity_id),
    CONSTRAINT object_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX object_entity_mentions_entity_idx ON object_entity_mentions (tenant_id, entity_id, canonical_id);
INSERT INTO branches (tenant_id, branch_id, project_id, name, created_at)
SELECT p.tenant_id, make_id(), p.project_id, 'main', clock_timestamp() FROM projects p
UNION ALL
SELECT t.tenant_id, make_id(), NULL, 'main', clock_timestamp() FROM tenants t;
"""

RULES: dict[str, tuple[Rule, str]] = {
    "branches": (Rule.VOCABULARY, "SELECT, INSERT"),
    "object_type_schemas": (Rule.TENANT, "SELECT, INSERT, UPDATE"),
    "relationship_type_schemas": (Rule.TENANT, "SELECT, INSERT, UPDATE"),
    "graph_objects": (Rule.OBJECTS, "SELECT, INSERT, UPDATE"),
    "graph_object_versions": (Rule.OBJECTS, "SELECT, INSERT"),
    "graph_relationships": (Rule.OBJECTS, "SELECT, INSERT, UPDATE"),
    "graph_relationship_versions": (Rule.OBJECTS, "SELECT, INSERT"),
    "object_entity_mentions": (Rule.NAMES, "SELECT"),
}

# New functions, and those that changed, as they are now.
FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION backfill_objects(p_rows json, OUT made bigint, OUT bound bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_main uuid := main_branch(v_project);
    v_now timestamptz;
    v_row record;
    v_object uuid;
    v_type record;
    v_made uuid[] := '{}';
BEGIN
    IF v_tenant IS NULL OR v_main IS NULL THEN
        RAISE EXCEPTION 'backfill_objects needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    made := 0;
    bound := 0;
    v_now := clock_timestamp();
    FOR v_row IN
        SELECT r.* FROM json_to_recordset(p_rows) AS r(
            entity_id uuid, object_id uuid, type text, key text, title text, properties jsonb, embed_text text,
            content_hash text)
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = r.entity_id
        WHERE e.project_id = v_project AND e.merged_into IS NULL AND e.suppression = 0
          AND e.object_canonical_id IS NULL
        ORDER BY r.entity_id FOR NO KEY UPDATE OF e
    LOOP
        SELECT o.canonical_id INTO v_object FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.type = v_row.type AND o.key = v_row.key
          AND o.deleted_at IS NULL AND o.suppression = 0;
        IF NOT FOUND THEN
            SELECT coalesce(s.fts_enabled, true) AS words, coalesce(s.embedding_policy, 'optional') AS policy
            INTO v_type
            FROM (VALUES (true)) x
            LEFT JOIN LATERAL (
                SELECT t.fts_enabled, t.embedding_policy FROM object_type_schemas t
                WHERE t.tenant_id = v_tenant AND t.type = v_row.type AND t.status = 'active'
                UNION ALL
                SELECT g.fts_enabled, g.embedding_policy FROM global_object_type_schemas g
                WHERE g.type = v_row.type AND g.status = 'active'
                LIMIT 1) s ON true;
            INSERT INTO graph_objects (
                tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, labels,
                properties, content_hash, created_at, updated_at, terms, embed_text)
            VALUES (
                v_tenant, v_main, v_row.object_id, v_row.object_id, 1, v_project, v_row.type, v_row.key, v_row.title,
                '{}', v_row.properties, decode(v_row.content_hash, 'hex'), v_now, v_now,
                CASE WHEN v_type.words THEN object_terms(
                    v_tenant, v_project, v_row.title, v_row.key, '{}', object_words(v_row.properties)) ELSE '' END,
                CASE WHEN v_type.policy <> 'disabled' THEN v_row.embed_text END)
            -- Somebody may have made one of that key in between; then the entity waits for the next run.
            ON CONFLICT DO NOTHING
            RETURNING canonical_id INTO v_object;
            CONTINUE WHEN v_object IS NULL;
            INSERT INTO graph_object_versions (
                tenant_id, branch_id, canonical_id, version_id, version, project_id, type, key, title, labels,
                properties, content_hash, change_summary, written_by, created_at)
            VALUES (
                v_tenant, v_main, v_object, v_object, 1, v_project, v_row.type, v_row.key, v_row.title, '{}',
                v_row.properties, decode(v_row.content_hash, 'hex'), end_summary(v_row.properties, NULL), v_agent,
                v_now);
            v_made := v_made || v_object;
            made := made + 1;
        ELSE
            bound := bound + 1;
        END IF;
        UPDATE graph_entities e SET object_canonical_id = v_object
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_row.entity_id;
        PERFORM settle_objects(v_tenant, ARRAY[v_object]);
    END LOOP;
    PERFORM queue_units(v_tenant, v_project, 'object', v_made);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION backfill_relationships(p_rows json)
RETURNS bigint
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
    v_main uuid := main_branch(v_project);
    v_now timestamptz;
    v_made uuid[];
BEGIN
    IF v_tenant IS NULL OR v_main IS NULL THEN
        RAISE EXCEPTION 'backfill_relationships needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    -- Nobody deletes an end, or changes how many there may be, beside us.
    PERFORM FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND o.canonical_id IN (
        SELECT e.object_canonical_id FROM json_to_recordset(p_rows) AS r(fact_id uuid)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id IN (f.subject_entity_id, f.object_entity_id))
    ORDER BY o.canonical_id, o.branch_id FOR SHARE;
    PERFORM hold_types(v_tenant, ARRAY(
        SELECT DISTINCT p.canonical FROM json_to_recordset(p_rows) AS r(fact_id uuid)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id), false);
    v_now := clock_timestamp();
    WITH wanted AS (
        SELECT DISTINCT ON (s.object_canonical_id, p.canonical, t.object_canonical_id)
               r.relationship_id, s.object_canonical_id AS src_id, t.object_canonical_id AS dst_id, p.canonical AS type,
               f.confidence, f.valid_from, f.valid_to, r.content_hash
        FROM json_to_recordset(p_rows) AS r(fact_id uuid, relationship_id uuid, content_hash text)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = r.fact_id AND f.project_id = v_project
            AND f.scope <> 'agent_private' AND f.garden_id IS NULL AND f.retracted_at IS NULL AND f.suppression = 0
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_entities t ON t.tenant_id = v_tenant AND t.entity_id = f.object_entity_id
        JOIN graph_objects a ON a.tenant_id = v_tenant AND a.branch_id = v_main
            AND a.canonical_id = s.object_canonical_id AND a.deleted_at IS NULL AND a.suppression = 0
        JOIN graph_objects b ON b.tenant_id = v_tenant AND b.branch_id = v_main
            AND b.canonical_id = t.object_canonical_id AND b.deleted_at IS NULL AND b.suppression = 0
        WHERE s.object_canonical_id <> t.object_canonical_id
        ORDER BY s.object_canonical_id, p.canonical, t.object_canonical_id, f.confidence DESC, f.fact_id
    ), made AS (
        INSERT INTO graph_relationships AS x (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight,
            valid_from, valid_to, properties, content_hash, created_at, updated_at, one_src, one_dst)
        SELECT v_tenant, v_main, w.relationship_id, w.relationship_id, 1, v_project, w.type, w.src_id, w.dst_id,
               w.confidence, w.valid_from, w.valid_to, '{}', decode(w.content_hash, 'hex'), v_now, v_now,
               k.one_src, k.one_dst
        FROM wanted w CROSS JOIN LATERAL multiplicity_of(v_tenant, w.type) k
        WHERE NOT EXISTS (
            SELECT FROM graph_relationships o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.src_id = w.src_id AND o.type = w.type
              AND o.dst_id = w.dst_id)
        ORDER BY w.relationship_id
        -- What a type allows once stays as it is.
        ON CONFLICT DO NOTHING
        RETURNING x.*
    ), told AS (
        INSERT INTO graph_relationship_versions AS v (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight,
            valid_from, valid_to, properties, content_hash, change_summary, written_by, created_at)
        SELECT m.tenant_id, m.branch_id, m.canonical_id, m.version_id, m.version, m.project_id, m.type, m.src_id,
               m.dst_id, m.weight, m.valid_from, m.valid_to, m.properties, m.content_hash,
               end_summary(m.properties, NULL), v_agent, m.created_at
        FROM made m
        RETURNING v.canonical_id
    )
    SELECT array_agg(t.canonical_id) INTO v_made FROM told t;
    PERFORM settle_objects(v_tenant, v_made);
    RETURN coalesce(cardinality(v_made), 0);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION bind_entity(p_entity uuid, p_object uuid, p_admin boolean, p_key text)
RETURNS TABLE (refused text, entity_id uuid, object_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz;
    v_entity graph_entities;
    v_object uuid;
    v_hidden boolean;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'bind_entity needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    -- Beside other writers, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT o.* INTO v_entity FROM graph_entities e
    JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = coalesce(e.merged_into, e.entity_id)
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND o.suppression = 0;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'entity_not_found', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity.entity_id AND e.merged_into IS NULL FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the entity was merged meanwhile' USING ERRCODE = '40001';
    END IF;
    IF p_object IS NOT NULL THEN
        -- The canonical id is that of the first version.
        SELECT v.canonical_id INTO v_object FROM graph_object_versions v
        JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = v.branch_id AND o.canonical_id = v.canonical_id
        WHERE v.tenant_id = v_tenant AND v.version_id = p_object AND v.suppression = 0
          AND (v.project_id IS NULL OR v.project_id = v_project) AND o.deleted_at IS NULL AND o.suppression = 0;
        IF NOT FOUND THEN
            RETURN QUERY SELECT 'object_not_found', NULL::uuid, NULL::uuid;
            RETURN;
        END IF;
    END IF;
    IF NOT p_admin AND EXISTS (
        SELECT FROM graph_object_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id IN (v_object, v_entity.object_canonical_id)
          AND v.project_id IS NULL) THEN
        RETURN QUERY SELECT 'wrong_key_kind', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    v_hidden := hidden_level(v_entity.erased_scopes, v_entity.held_scopes, 'project_shared') > 0;
    IF v_hidden AND p_admin THEN
        RETURN QUERY SELECT 'entity_tombstoned', NULL::uuid, NULL::uuid;
        RETURN;
    END IF;
    IF v_object IS DISTINCT FROM v_entity.object_canonical_id THEN
        v_now := clock_timestamp();
        IF v_hidden AND v_entity.object_canonical_id IS NOT NULL THEN
            -- What a tombstone hides it keeps, until it is revoked.
            INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
            VALUES (v_tenant, v_project, v_entity.object_canonical_id, v_entity.entity_id, v_now)
            ON CONFLICT DO NOTHING;
        END IF;
        UPDATE graph_entities e SET object_canonical_id = v_object, updated_at = v_now
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_entity.entity_id;
        PERFORM settle_objects(v_tenant, array_remove(ARRAY[v_entity.object_canonical_id, v_object], NULL));
        PERFORM record_event('object_write', p_key, jsonb_build_object(
            'action', CASE WHEN v_object IS NULL THEN 'entity_unbind' ELSE 'entity_bind' END,
            'entity_id', v_entity.entity_id, 'object_id', coalesce(v_object, v_entity.object_canonical_id)));
    END IF;
    RETURN QUERY SELECT NULL::text, v_entity.entity_id, v_object;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION change_object(p_tenant text, p_agent text, p_row json, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM json_to_record(p_row) AS x(
        branch_id uuid, canonical_id uuid, version_id uuid, version int, supersedes_id uuid, project_id text,
        type text, subtype text, key text, title text, status text, labels text[], effective_from timestamptz,
        effective_to timestamptz, properties jsonb, evidence jsonb, content_hash text, schema_version int,
        searched boolean, embed_text text, deleted_at timestamptz, change_summary jsonb);
    UPDATE graph_objects o
    SET version_id = r.version_id, version = r.version, subtype = r.subtype, key = r.key, title = r.title,
        status = r.status, labels = r.labels, effective_from = r.effective_from, effective_to = r.effective_to,
        properties = r.properties, evidence = r.evidence, content_hash = decode(r.content_hash, 'hex'),
        schema_version = r.schema_version, deleted_at = r.deleted_at, updated_at = p_now, embed_text = r.embed_text,
        terms = CASE WHEN r.searched AND r.deleted_at IS NULL
                     THEN object_terms(p_tenant, r.project_id, r.title, r.key, r.labels, object_words(r.properties))
                     ELSE '' END
    WHERE o.tenant_id = p_tenant AND o.canonical_id = r.canonical_id AND o.branch_id = r.branch_id;
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, deleted_at, supersedes_id,
        change_summary, written_by, created_at)
    VALUES (p_tenant, r.branch_id, r.canonical_id, r.version_id, r.version, r.project_id, r.type, r.subtype, r.key,
            r.title, r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
            decode(r.content_hash, 'hex'), r.schema_version, r.deleted_at, r.supersedes_id, r.change_summary, p_agent,
            p_now);
    IF r.project_id IS NOT NULL THEN
        PERFORM queue_units(p_tenant, r.project_id, 'object', ARRAY[r.canonical_id]);
    END IF;
    PERFORM settle_objects(p_tenant, ARRAY[r.canonical_id]);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION change_relationship(p_tenant text, p_agent text, p_row json, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    r record;
BEGIN
    SELECT * INTO r FROM json_to_record(p_row) AS x(
        branch_id uuid, canonical_id uuid, version_id uuid, version int, supersedes_id uuid, project_id text,
        type text, src_id uuid, dst_id uuid, weight double precision, role_src text, role_dst text,
        valid_from timestamptz, valid_to timestamptz, properties jsonb, evidence jsonb, content_hash text,
        schema_version int, deleted_at timestamptz, change_summary jsonb);
    PERFORM hold_types(p_tenant, ARRAY[r.type], false);
    UPDATE graph_relationships x
    SET version_id = r.version_id, version = r.version, weight = r.weight, role_src = r.role_src, role_dst = r.role_dst,
        valid_from = r.valid_from, valid_to = r.valid_to, properties = r.properties, evidence = r.evidence,
        content_hash = decode(r.content_hash, 'hex'), schema_version = r.schema_version, deleted_at = r.deleted_at,
        deleted_with = NULL, updated_at = p_now, one_src = m.one_src, one_dst = m.one_dst
    FROM multiplicity_of(p_tenant, r.type) m
    WHERE x.tenant_id = p_tenant AND x.canonical_id = r.canonical_id AND x.branch_id = r.branch_id;
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, supersedes_id,
        change_summary, written_by, created_at)
    VALUES (p_tenant, r.branch_id, r.canonical_id, r.version_id, r.version, r.project_id, r.type, r.src_id, r.dst_id,
            r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
            decode(r.content_hash, 'hex'), r.schema_version, r.deleted_at, r.supersedes_id, r.change_summary, p_agent,
            p_now);
    PERFORM settle_objects(p_tenant, ARRAY[r.canonical_id]);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION check_types(p_tenant text, p_branches uuid[], p_kind text, p_types text[])
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_type text;
BEGIN
    FOREACH v_type IN ARRAY p_types LOOP
        IF p_kind = 'object' THEN
            CONTINUE WHEN EXISTS (SELECT FROM object_type_schemas s WHERE s.tenant_id = p_tenant AND s.type = v_type);
            CONTINUE WHEN EXISTS (SELECT FROM global_object_type_schemas s WHERE s.type = v_type);
            CONTINUE WHEN EXISTS (
                SELECT FROM graph_objects x WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches)
                    AND x.type = v_type AND x.deleted_at IS NULL);
        ELSE
            CONTINUE WHEN EXISTS (
                SELECT FROM relationship_type_schemas s WHERE s.tenant_id = p_tenant AND s.type = v_type);
            CONTINUE WHEN EXISTS (SELECT FROM global_relationship_type_schemas s WHERE s.type = v_type);
            CONTINUE WHEN EXISTS (
                SELECT FROM graph_relationships x WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches)
                    AND x.type = v_type AND x.deleted_at IS NULL);
        END IF;
        RETURN v_type;
    END LOOP;
    RETURN NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION contain_objects(
    p_branch uuid, p_shared uuid, p_type text, p_subtype text, p_status text, p_key text, p_labels text[],
    p_properties jsonb, p_after uuid, p_limit int)
RETURNS TABLE (canonical_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN QUERY
    SELECT o.canonical_id FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND (o.project_id IS NULL OR o.project_id = v_project) AND o.suppression = 0
      AND o.branch_id IN (p_branch, p_shared) AND o.deleted_at IS NULL
      AND (p_type IS NULL OR o.type = p_type) AND (p_subtype IS NULL OR o.subtype = p_subtype)
      AND (p_status IS NULL OR o.status = p_status) AND (p_key IS NULL OR o.key = p_key)
      AND (p_labels IS NULL OR o.labels @> p_labels)
      AND (p_properties IS NULL OR o.properties @> p_properties)
      AND (p_after IS NULL OR o.canonical_id < p_after)
    ORDER BY o.canonical_id DESC LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION doomed_objects(
    p_tenant text, p_entity uuid, p_scopes text[], OUT objects uuid[], OUT relationships uuid[])
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_linked uuid[];
BEGIN
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        v_linked := ARRAY(
            SELECT m.canonical_id FROM object_entity_mentions m
            WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
            UNION
            SELECT e.object_canonical_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
              AND e.object_canonical_id IS NOT NULL);
    END IF;
    objects := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_object_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_linked));
    relationships := ARRAY(
        SELECT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_linked)
        UNION
        SELECT r.canonical_id FROM graph_relationships r
        WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (objects) OR r.dst_id = ANY (objects)));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION end_summary(p_properties jsonb, p_mark text)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_names jsonb;
    v_count int;
    v_bytes int := octet_length(p_properties::text);
    v_small boolean;
    v_gone boolean := p_mark IS NOT DISTINCT FROM 'deleted';
    v_added jsonb;
BEGIN
    SELECT coalesce(jsonb_agg('/' || replace(replace(k.name, '~', '~0'), '/', '~1') ORDER BY k.name), '[]'), count(*)
    INTO v_names, v_count FROM jsonb_object_keys(p_properties) k(name);
    IF octet_length(v_names::text) > 4096 THEN
        v_names := '[""]';
    END IF;
    v_small := v_bytes <= 2048 AND v_names <> '[""]';
    SELECT coalesce(jsonb_object_agg('/' || replace(replace(p.name, '~', '~0'), '/', '~1'), p.value), '{}')
    INTO v_added FROM jsonb_each(p_properties) p(name, value) WHERE v_small AND NOT v_gone;
    RETURN jsonb_build_object(
        'added', CASE WHEN v_gone OR v_small THEN v_added
                      ELSE jsonb_build_object('count', v_count, 'elided', true) END,
        'removed', CASE WHEN v_gone THEN v_names ELSE '[]' END,
        'updated', '{}'::jsonb, 'paths', v_names,
        'meta', jsonb_strip_nulls(jsonb_build_object(
            'added', CASE WHEN v_gone THEN 0 ELSE v_count END, 'removed', CASE WHEN v_gone THEN v_count ELSE 0 END,
            'updated', 0, 'propBytesBefore', CASE WHEN v_gone THEN v_bytes ELSE 2 END,
            'propBytesAfter', CASE WHEN v_gone THEN 2 ELSE v_bytes END,
            'deleted', CASE WHEN p_mark = 'deleted' THEN true END,
            'restored', CASE WHEN p_mark = 'restored' THEN true END)));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION expand_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_phased boolean, p_depth int, p_time timestamptz,
    p_fan int, p_cap int, p_most int, p_dedupe text, p_distinct boolean, p_paths boolean, p_most_paths int,
    p_include jsonb)
RETURNS TABLE (
    problem text, detail text, missing text[], nodes text, edges text, paths text, node_count int, edge_count int,
    depth_reached int, overflow text)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET work_mem = 65536
AS $$
#variable_conflict use_column
DECLARE
    v_reach record;
    v_roots uuid[];
    w record;
    v_found record;
    v_paths text[];
    v_heres uuid[];
    v_theres uuid[];
    v_chosen text;
    -- How much text of edges is told at the most; walk_objects has as much for nodes.
    v_bytes bigint := 33554432;
    v_total bigint;
BEGIN
    v_reach := reach_of(p_tenant, p_project);
    SELECT array_agg(DISTINCT f.canonical_id), array_agg(DISTINCT a.id::text) FILTER (WHERE f.asked IS NULL)
    INTO v_roots, missing
    FROM unnest(p_roots) a(id)
    LEFT JOIN find_roots(p_tenant, v_reach.objects, p_roots, p_time) f ON f.asked = a.id;
    v_roots := array_remove(v_roots, NULL);
    IF cardinality(v_roots) = 0 OR v_roots IS NULL THEN
        problem := 'object_not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    detail := coalesce(
        check_types(p_tenant, v_reach.objects, 'object', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'node_types') t(type))),
        check_types(p_tenant, v_reach.relationships, 'relationship', ARRAY(
            SELECT t.type FROM jsonb_array_elements(p_steps) s(step)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.step -> 'edge_types') t(type))));
    IF detail IS NOT NULL THEN
        problem := 'type_unknown';
        RETURN NEXT;
        RETURN;
    END IF;
    w := walk_objects(
        p_tenant, v_reach.objects, v_reach.relationships, v_roots, p_steps, p_phased, false, p_depth, p_time, p_fan,
        p_cap, p_most, p_distinct OR (p_paths AND p_dedupe <> 'path'), p_include -> 'object');
    overflow := w.overflow;
    node_count := cardinality(w.nodes);
    depth_reached := w.depths[node_count];
    nodes := array_to_string(w.fragments, ',');
    IF p_dedupe = 'path' THEN
        v_found := list_paths(
            ARRAY(SELECT n.id FROM unnest(w.nodes, w.depths) n(id, depth) WHERE n.depth = 0), w.heres, w.theres,
            w.levels, p_depth, p_phased, p_most_paths);
        v_paths := v_found.paths;
        v_heres := v_found.heres;
        v_theres := v_found.theres;
    END IF;
    -- Which of what was crossed is told: each once and of several crossings the first, in the order of ids.
    v_chosen := 'SELECT DISTINCT ON (e.id) e.id AS canonical_id, '
        'CASE WHEN e.out THEN e.here ELSE e.there END AS src_id, '
        'CASE WHEN e.out THEN e.there ELSE e.here END AS dst_id, e.type, e.weight, e.level, e.here, e.there '
        'FROM unnest($1, $2, $3, $4, $5, $6, $7) e(id, here, there, out, type, weight, level) '
        || CASE WHEN p_distinct THEN 'WHERE e.id IN (SELECT unnest($8)) '
                WHEN p_dedupe = 'path'
                    THEN 'WHERE (e.here, e.there) IN (SELECT h.here, h.there FROM unnest($9, $10) h(here, there)) '
                ELSE '' END
        || 'ORDER BY e.id, e.level, e.here';
    IF cardinality(w.edges) > p_most THEN
        v_chosen := format('SELECT n.* FROM (SELECT c.* FROM (%s) c ORDER BY c.level, c.canonical_id LIMIT %s) n '
                           'ORDER BY n.canonical_id', v_chosen, p_most);
    END IF;
    IF p_include -> 'edge' -> 'stored' = 'true'::jsonb THEN
        v_chosen := format(
            'SELECT s.*, c.here, c.there FROM (%s) c CROSS JOIN LATERAL (SELECT r.* FROM graph_relationships r '
            'WHERE r.tenant_id = %L AND r.branch_id = ANY (%L::uuid[]) AND r.canonical_id = c.canonical_id OFFSET 0) s '
            'ORDER BY c.canonical_id', v_chosen, p_tenant, v_reach.relationships);
    END IF;
    v_chosen := format(
        'SELECT x.here, x.there, 1 AS total, concat(''{"id":"'', x.canonical_id, ''","src":"'', x.src_id, '
        '''","dst":"'', x.dst_id, ''"''%s, ''}'') AS fragment FROM (%s) x',
        fragment_clause(p_include -> 'edge'), v_chosen);
    IF p_include -> 'edge' -> 'stored' = 'true'::jsonb THEN
        -- Only these can be long.
        v_chosen := format(
            'SELECT s.here, s.there, s.total, s.fragment FROM ('
            'SELECT c.here, c.there, c.fragment, count(*) OVER () AS total, '
            'sum(octet_length(c.fragment)) OVER (ROWS UNBOUNDED PRECEDING) AS size FROM (%s) c) s WHERE s.size <= %s',
            v_chosen, v_bytes);
    END IF;
    EXECUTE format(
        'SELECT string_agg(x.fragment, '',''), count(*), max(x.total), %s FROM (%s) x',
        CASE WHEN p_paths AND p_dedupe = 'edge' THEN 'array_agg(x.here), array_agg(x.there)' ELSE 'NULL, NULL' END,
        v_chosen)
    INTO edges, edge_count, v_total, v_heres, v_theres
    USING w.edges, w.heres, w.theres, w.outs, w.types, w.weights, w.levels, w.links, v_heres, v_theres;
    IF v_total > edge_count THEN
        overflow := coalesce(overflow, 'edge');
    END IF;
    IF p_paths AND p_dedupe <> 'path' THEN
        -- Along the ways by which each was first reached.
        WITH RECURSIVE reached AS (
            SELECT r.id, r.parent FROM unnest(w.nodes, w.parents) r(id, parent)
        ), ways AS (
            SELECT r.id, '"' || r.id || '"' AS path FROM reached r WHERE r.parent IS NULL
            UNION ALL
            SELECT r.id, y.path || ',"' || r.id || '"' FROM ways y JOIN reached r ON r.parent = y.id
        )
        SELECT array_agg(k.path) INTO v_paths FROM (
            SELECT a.path FROM (
                SELECT y.path FROM ways y WHERE p_dedupe = 'node'
                UNION ALL
                SELECT y.path || ',"' || e.there || '"' FROM unnest(v_heres, v_theres) e(here, there)
                JOIN ways y ON y.id = e.here WHERE p_dedupe = 'edge'
            ) a
            ORDER BY length(a.path), a.path COLLATE "C" LIMIT p_most_paths + 1
        ) k;
    END IF;
    IF cardinality(v_paths) > p_most_paths THEN
        overflow := coalesce(overflow, 'path');
    END IF;
    paths := '[' || array_to_string(v_paths[:p_most_paths], '],[') || ']';
    RETURN NEXT;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION filter_clause(p_predicates jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_one jsonb;
    v_column text;
    v_path text[];
    v_operator text;
    v_given jsonb;
    v_text text;
    v_found text;
    v_clauses text := '';
BEGIN
    FOR v_one IN SELECT p.one FROM jsonb_array_elements(p_predicates) p(one) LOOP
        v_column := v_one ->> 'column';
        v_path := ARRAY(SELECT t.token FROM jsonb_array_elements_text(v_one -> 'path') t(token));
        v_operator := v_one ->> 'operator';
        v_given := v_one -> 'value';
        v_text := v_given #>> '{}';
        v_found := CASE
            WHEN v_column IS NULL THEN 'x.properties'
            WHEN v_column IN ('key', 'title', 'status')
                THEN format('coalesce(to_jsonb(x.%I), x.properties -> %L)', v_column, v_column)
            ELSE format('to_jsonb(x.%I)', v_column)
        END;
        IF cardinality(v_path) > 0 THEN
            v_found := CASE
                WHEN EXISTS (SELECT FROM unnest(v_path) t(token)
                             WHERE t.token ~ '^\s*[-+]?[0-9]+$' AND t.token !~ '^(0|[1-9][0-9]*)$')
                    THEN format('point_at(%s, %L::text[])', v_found, v_path)
                ELSE format('(%s #> %L::text[])', v_found, v_path)
            END;
        END IF;
        v_clauses := v_clauses || ' AND ' || CASE
            WHEN v_operator = 'exists' THEN format('((%s IS NOT NULL) = %L::boolean)', v_found, v_text)
            WHEN v_column IN ('effective_from', 'effective_to', 'valid_from', 'valid_to', 'created_at', 'updated_at')
                THEN CASE
                    WHEN v_operator IN ('in', 'notIn') THEN format(
                        '(coalesce(x.%I = ANY (%L::timestamptz[]), false) = %L::boolean)', v_column,
                        ARRAY(SELECT t.given FROM jsonb_array_elements_text(v_given) t(given)
                              WHERE t.given IS NOT NULL),
                        v_operator = 'in')
                    WHEN v_operator = 'notEquals' THEN CASE WHEN v_text IS NULL THEN 'true'
                        ELSE format('(x.%I IS DISTINCT FROM %L::timestamptz)', v_column, v_text) END
                    ELSE format('coalesce(x.%I %s %L::timestamptz, false)', v_column, CASE v_operator
                        WHEN 'equals' THEN '=' WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                        WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
                END
            WHEN v_operator = 'equals' THEN format('coalesce(%s = %L::jsonb, false)', v_found, v_given)
            WHEN v_operator = 'notEquals' THEN format('(%s IS DISTINCT FROM %L::jsonb)', v_found, v_given)
            WHEN v_operator IN ('in', 'notIn') THEN format(
                '(coalesce(%s = ANY (%L::jsonb[]), false) = %L::boolean)', v_found,
                ARRAY(SELECT t.given FROM jsonb_array_elements(v_given) t(given)), v_operator = 'in')
            WHEN v_operator = 'contains' THEN CASE
                WHEN jsonb_typeof(v_given) = 'string' THEN format(
                    'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN strpos(%1$s #>> ''{}'', %2$L) > 0 '
                    'WHEN ''array'' THEN %1$s @> %3$L::jsonb ELSE false END', v_found, v_text, v_given)
                ELSE format(
                    'CASE jsonb_typeof(%1$s) WHEN ''array'' THEN %1$s @> %2$L::jsonb ELSE false END', v_found, v_given)
            END
            WHEN v_operator = 'startsWith' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN starts_with(%1$s #>> ''{}'', %2$L) ELSE false END',
                v_found, v_text)
            WHEN v_operator = 'endsWith' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN right(%1$s #>> ''{}'', length(%2$L)) = %2$L '
                'ELSE false END', v_found, v_text)
            WHEN jsonb_typeof(v_given) = 'number' THEN format(
                'CASE jsonb_typeof(%1$s) WHEN ''number'' THEN (%1$s)::numeric %2$s %3$L::numeric ELSE false END',
                v_found, CASE v_operator WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                                         WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
            ELSE format(
                'CASE jsonb_typeof(%1$s) WHEN ''string'' THEN (%1$s #>> ''{}'') COLLATE "C" %2$s %3$L ELSE false END',
                v_found, CASE v_operator WHEN 'greaterThan' THEN '>' WHEN 'greaterThanOrEqual' THEN '>='
                                         WHEN 'lessThan' THEN '<' WHEN 'lessThanOrEqual' THEN '<=' END, v_text)
        END;
    END LOOP;
    RETURN v_clauses;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION find_object_hold(p_tenant text, p_objects uuid[], p_relationships uuid[])
RETURNS uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_all uuid[];
BEGIN
    v_all := p_objects || p_relationships || ARRAY(
        SELECT x.id FROM graph_relationships r CROSS JOIN LATERAL (VALUES (r.src_id), (r.dst_id)) x(id)
        WHERE r.tenant_id = p_tenant AND r.canonical_id = ANY (p_relationships));
    RETURN (
        SELECT t.tombstone_id FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.legal_hold AND (t.scopes IS NULL OR 'project_shared' = ANY (t.scopes))
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
          AND (EXISTS (SELECT FROM object_entity_mentions m
                       WHERE m.tenant_id = p_tenant AND m.entity_id = t.entity_id AND m.canonical_id = ANY (v_all))
               OR EXISTS (SELECT FROM graph_entities e
                          WHERE e.tenant_id = p_tenant AND e.object_canonical_id = ANY (v_all)
                            AND t.entity_id IN (e.entity_id, e.merged_into)))
        ORDER BY t.created_at LIMIT 1);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION find_roots(p_tenant text, p_branches uuid[], p_ids uuid[], p_time timestamptz)
RETURNS TABLE (asked uuid, canonical_id uuid)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- The id is settled before it is looked up: no index is used for an expression that might leak.
    SELECT m.asked, h.canonical_id
    FROM (
        SELECT a.id AS asked, coalesce(v.canonical_id, a.id) AS id FROM unnest(p_ids) a(id)
        LEFT JOIN LATERAL (
            SELECT v.canonical_id FROM graph_object_versions v
            WHERE v.tenant_id = p_tenant AND v.version_id = a.id OFFSET 0
        ) v ON true
        OFFSET 0
    ) m
    CROSS JOIN LATERAL (
        SELECT x.canonical_id FROM graph_objects x
        WHERE x.tenant_id = p_tenant AND x.branch_id = ANY (p_branches) AND x.canonical_id = m.id
          AND x.deleted_at IS NULL
          AND (p_time IS NULL
               OR (coalesce(x.effective_from <= p_time, true) AND coalesce(x.effective_to > p_time, true)))
        OFFSET 0
    ) h;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION fragment_clause(p_include jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_field text;
    v_parts text := '';
BEGIN
    FOR v_field IN SELECT f.field FROM jsonb_array_elements_text(p_include -> 'fields') f(field) LOOP
        v_parts := v_parts || format(', %L, ', format(',%s:', to_json(v_field))) || CASE
            WHEN v_field IN ('version', 'weight') THEN format('coalesce(x.%I::text, ''null'')', v_field)
            WHEN v_field IN ('effective_from', 'effective_to', 'valid_from', 'valid_to', 'created_at', 'updated_at')
                THEN format('coalesce(to_char(x.%I AT TIME ZONE ''UTC'', ''\"YYYY-MM-DD"T"HH24:MI:SS.US"Z"\"''), '
                            '''null'')', v_field)
            ELSE format('coalesce(to_json(x.%I)::text, ''null'')', v_field)
        END;
    END LOOP;
    IF p_include -> 'properties' = 'true'::jsonb THEN
        v_parts := v_parts || ', '',"properties":'', x.properties';
    ELSIF p_include ? 'properties' THEN
        v_parts := v_parts || format(', '',"properties":'', pick_json(x.properties, %L)', p_include -> 'properties');
    END IF;
    RETURN v_parts;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION hold_types(p_tenant text, p_types text[], p_change boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_lock bigint;
BEGIN
    FOR v_lock IN
        SELECT DISTINCT hashtextextended(p_tenant || ' ' || t.type, 7) FROM unnest(p_types) t(type) ORDER BY 1
    LOOP
        IF p_change THEN
            PERFORM pg_advisory_xact_lock(v_lock);
        ELSE
            PERFORM pg_advisory_xact_lock_shared(v_lock);
        END IF;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION link_objects(p_tenant text, p_agent text, p_rows json, p_now timestamptz)
RETURNS TABLE (canonical_id uuid, outcome text, existing_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_made uuid[];
BEGIN
    -- Whoever changes how many there may be waits for us, or we for them.
    PERFORM hold_types(p_tenant, ARRAY(SELECT DISTINCT r.type FROM json_to_recordset(p_rows) AS r(type text)), false);
    WITH given AS (
        SELECT r.*, t.one_src, t.one_dst
        FROM json_to_recordset(p_rows) AS r(
            branch_id uuid, canonical_id uuid, project_id text, type text, src_id uuid, dst_id uuid,
            weight double precision, role_src text, role_dst text, valid_from timestamptz, valid_to timestamptz,
            properties jsonb, evidence jsonb, content_hash text, schema_version int)
        JOIN (SELECT n.type, m.one_src, m.one_dst
              FROM (SELECT DISTINCT x.type FROM json_to_recordset(p_rows) AS x(type text)) n
              CROSS JOIN LATERAL multiplicity_of(p_tenant, n.type) m) t ON t.type = r.type
    ), made AS (
        INSERT INTO graph_relationships AS x (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, created_at, updated_at,
            one_src, one_dst)
        SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.src_id, r.dst_id,
               r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
               decode(r.content_hash, 'hex'), r.schema_version, p_now, p_now, r.one_src, r.one_dst
        FROM given r
        -- Also beside relationships from before the installation's type allowed one only.
        WHERE NOT (r.one_src AND EXISTS (
                  SELECT FROM graph_relationships o
                  WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id
                    AND o.type = r.type AND o.deleted_at IS NULL))
          AND NOT (r.one_dst AND EXISTS (
                  SELECT FROM graph_relationships o
                  WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id
                    AND o.type = r.type AND o.deleted_at IS NULL))
        ORDER BY r.type, r.src_id, r.dst_id, r.canonical_id
        ON CONFLICT DO NOTHING
        RETURNING x.canonical_id
    ) SELECT coalesce(array_agg(m.canonical_id), '{}') INTO v_made FROM made m;
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, change_summary, written_by,
        created_at)
    SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.src_id, r.dst_id,
           r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
           decode(r.content_hash, 'hex'), r.schema_version, r.change_summary, p_agent, p_now
    FROM json_to_recordset(p_rows) AS r(
        branch_id uuid, canonical_id uuid, project_id text, type text, src_id uuid, dst_id uuid,
        weight double precision, role_src text, role_dst text, valid_from timestamptz, valid_to timestamptz,
        properties jsonb, evidence jsonb, content_hash text, schema_version int, change_summary jsonb)
    WHERE r.canonical_id = ANY (v_made);
    PERFORM settle_objects(p_tenant, v_made);
    RETURN QUERY
    SELECT r.canonical_id,
           CASE WHEN r.canonical_id = ANY (v_made) THEN 'created' WHEN e.canonical_id IS NOT NULL THEN 'exists'
                WHEN m.one_src AND EXISTS (
                    SELECT FROM graph_relationships o
                    WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id
                      AND o.type = r.type AND o.deleted_at IS NULL) THEN 'src'
                WHEN m.one_dst AND EXISTS (
                    SELECT FROM graph_relationships o
                    WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id
                      AND o.type = r.type AND o.deleted_at IS NULL) THEN 'dst'
                ELSE 'again' END,
           e.canonical_id
    FROM json_to_recordset(p_rows) AS r(branch_id uuid, canonical_id uuid, type text, src_id uuid, dst_id uuid)
    CROSS JOIN LATERAL multiplicity_of(p_tenant, r.type) m
    LEFT JOIN graph_relationships e
        ON e.tenant_id = p_tenant AND e.branch_id = r.branch_id AND e.src_id = r.src_id AND e.dst_id = r.dst_id
       AND e.type = r.type AND e.deleted_at IS NULL AND e.canonical_id <> r.canonical_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION list_paths(
    p_roots uuid[], p_heres uuid[], p_theres uuid[], p_levels int[], p_depth int, p_phased boolean, p_limit int,
    OUT paths text[], OUT heres uuid[], OUT theres uuid[])
LANGUAGE plpgsql IMMUTABLE
SET work_mem = 65536
AS $$
DECLARE
    v_near jsonb;
    v_front text[];
    v_last text[];
    v_paths text[];
    v_ends text[];
    v_room int;
    v_there text;
BEGIN
    SELECT array_agg('"' || r.id || '"' ORDER BY r.id), array_agg(r.id::text ORDER BY r.id) INTO v_front, v_last
    FROM unnest(p_roots) r(id);
    heres := '{}';
    theres := '{}';
    paths := v_front[: p_limit + 1];
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_limit - cardinality(paths);
        EXIT WHEN v_room < 0;
        IF v_level = 1 OR p_phased THEN
            SELECT coalesce(jsonb_object_agg(n.here, n.theres), '{}') INTO v_near
            FROM (SELECT a.here, jsonb_agg(a.there ORDER BY a.there) AS theres
                  FROM (SELECT DISTINCT e.here, e.there FROM unnest(p_heres, p_theres, p_levels) e(here, there, level)
                        WHERE NOT p_phased OR e.level = v_level) a
                  GROUP BY a.here) n;
        END IF;
        v_paths := '{}';
        v_ends := '{}';
        <<level>>
        FOR v_place IN 1 .. coalesce(cardinality(v_front), 0) LOOP
            CONTINUE WHEN NOT v_near ? v_last[v_place];
            FOR v_there IN SELECT t.id FROM jsonb_array_elements_text(v_near -> v_last[v_place]) t(id) LOOP
                CONTINUE WHEN strpos(v_front[v_place], v_there) > 0;
                v_paths := v_paths || (v_front[v_place] || ',"' || v_there || '"');
                v_ends := v_ends || v_there;
                IF cardinality(v_paths) <= v_room THEN
                    heres := heres || v_last[v_place]::uuid;
                    theres := theres || v_there::uuid;
                ELSE
                    EXIT level;
                END IF;
            END LOOP;
        END LOOP;
        EXIT WHEN v_paths = '{}';
        v_front := v_paths;
        v_last := v_ends;
        paths := paths || v_paths;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION look_at_objects(
    p_look text, p_ids uuid[], p_room int, p_end text, p_slice int, p_bytes bigint,
    OUT ids uuid[], OUT texts text[], OUT bytes bigint, OUT is_full boolean)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_ids uuid[];
    v_texts text[];
    v_from int := 1;
    v_size bigint;
BEGIN
    ids := '{}';
    texts := '{}';
    bytes := 0;
    is_full := false;
    WHILE v_from <= cardinality(p_ids) LOOP
        EXECUTE p_look INTO v_ids, v_texts
        USING p_ids[v_from : v_from + p_slice - 1], p_room - cardinality(ids), p_end;
        IF v_ids IS NOT NULL THEN
            SELECT sum(octet_length(t.text)) INTO v_size FROM unnest(v_texts) t(text);
            IF bytes + v_size > p_bytes THEN
                -- As many of these as still fit.
                SELECT array_agg(n.id ORDER BY n.place), array_agg(n.text ORDER BY n.place), max(n.size)
                INTO v_ids, v_texts, v_size
                FROM (SELECT t.id, t.text, t.place, sum(octet_length(t.text)) OVER (ORDER BY t.place) AS size
                      FROM unnest(v_ids, v_texts) WITH ORDINALITY t(id, text, place)) n
                WHERE bytes + n.size <= p_bytes;
                is_full := true;
            END IF;
            ids := ids || coalesce(v_ids, '{}');
            texts := texts || coalesce(v_texts, '{}');
            bytes := bytes + coalesce(v_size, 0);
        END IF;
        EXIT WHEN is_full OR cardinality(ids) >= p_room;
        v_from := v_from + p_slice;
    END LOOP;
    IF ids = '{}' THEN
        ids := NULL;
        texts := NULL;
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION main_branch(p_project text)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_branch uuid;
BEGIN
    SELECT b.branch_id INTO v_branch FROM branches b
    WHERE b.tenant_id = v_tenant AND b.name = 'main' AND b.project_id IS NOT DISTINCT FROM p_project;
    IF v_branch IS NULL AND v_tenant IS NOT NULL
       AND (p_project IS NULL
            OR EXISTS (SELECT FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = p_project)) THEN
        INSERT INTO branches (tenant_id, branch_id, project_id, name, created_at)
        VALUES (v_tenant, make_id(), p_project, 'main', clock_timestamp())
        ON CONFLICT DO NOTHING;
        SELECT b.branch_id INTO v_branch FROM branches b
        WHERE b.tenant_id = v_tenant AND b.name = 'main' AND b.project_id IS NOT DISTINCT FROM p_project;
    END IF;
    RETURN v_branch;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION main_branches(p_tenant text, p_project text)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = p_tenant AND b.name = 'main' AND (b.project_id = p_project OR b.project_id IS NULL));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION mark_multiplicity(p_type text)
RETURNS TABLE (side text, object_id uuid, objects bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    m record;
BEGIN
    m := multiplicity_of(v_tenant, p_type);
    RETURN QUERY
    WITH crowded AS (
        SELECT 'src' AS side, r.src_id AS object_id, max(r.project_id) AS project_id FROM graph_relationships r
        WHERE m.one_src AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.src_id HAVING count(*) > 1
        UNION ALL
        SELECT 'dst', r.dst_id, max(r.project_id) FROM graph_relationships r
        WHERE m.one_dst AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.dst_id HAVING count(*) > 1
    )
    SELECT c.side, shown.object_id, count(*) FROM crowded c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN coalesce(c.project_id, v_project) = v_project THEN c.object_id END AS object_id) shown
    GROUP BY c.side, shown.object_id ORDER BY 1 DESC, 2 LIMIT 20;
    IF NOT FOUND THEN
        UPDATE graph_relationships r SET one_src = m.one_src, one_dst = m.one_dst
        WHERE r.tenant_id = v_tenant AND r.type = p_type AND (r.one_src <> m.one_src OR r.one_dst <> m.one_dst);
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION match_objects(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_branches uuid[] DEFAULT NULL)
RETURNS TABLE (canonical_id uuid, branch_id uuid, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_branches uuid[];
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_branches := coalesce(p_branches, main_branches(v_tenant, v_project));
    v_keys := lexical_keys(v_tenant, v_project, p_chosen) || lexical_keys(v_tenant, '', p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT o.canonical_id, o.branch_id, o.terms_length, ts_filter(setweight(o.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_objects o
        WHERE lexical_keys(o.tenant_id, coalesce(o.project_id, ''), tsvector_to_array(o.terms)) && v_keys
          AND o.tenant_id IS NOT DISTINCT FROM v_tenant
          AND (o.project_id IS NULL OR o.project_id IS NOT DISTINCT FROM v_project)
          AND o.branch_id = ANY (v_branches) AND o.deleted_at IS NULL AND o.suppression = 0
        LIMIT p_most
    )
    SELECT f.canonical_id, f.branch_id,
           sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.canonical_id, w.branch_id, w.terms_length, (w.word).lexeme,
               cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.canonical_id, f.branch_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.canonical_id, f.branch_id ORDER BY 3 DESC, 1, 2 LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION multiplicity_of(p_tenant text, p_type text, OUT one_src boolean, OUT one_dst boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    SELECT t.multiplicity_src = 'one', t.multiplicity_dst = 'one' INTO one_src, one_dst
    FROM relationship_type_schemas t
    WHERE t.tenant_id = p_tenant AND t.type = p_type AND t.status = 'active';
    IF NOT FOUND THEN
        SELECT g.multiplicity_src = 'one', g.multiplicity_dst = 'one' INTO one_src, one_dst
        FROM global_relationship_type_schemas g WHERE g.type = p_type AND g.status = 'active';
    END IF;
    one_src := coalesce(one_src, false);
    one_dst := coalesce(one_dst, false);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_levels(p_tenant text, p_ids uuid[])
RETURNS TABLE (id uuid, level smallint)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT i.id, CASE WHEN bool_or(h.level = 1) THEN 1 WHEN bool_or(h.level = 2) THEN 2 ELSE 0 END::smallint
    FROM (SELECT DISTINCT u.id FROM unnest(p_ids) u(id)) i
    LEFT JOIN LATERAL (
        SELECT hidden_level(e.erased_scopes, e.held_scopes, 'project_shared') AS level FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND e.object_canonical_id = i.id
        UNION ALL
        SELECT hidden_level(e.erased_scopes, e.held_scopes, 'project_shared') FROM object_entity_mentions m
        JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
        WHERE m.tenant_id = p_tenant AND m.canonical_id = i.id
    ) h ON true
    GROUP BY i.id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple'::regconfig ELSE project_language(p_tenant, p_project) END,
        concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_words(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce(left((
        -- Strict, or what stands in a list would be found twice.
        SELECT string_agg(w.word #>> '{}', ' ' ORDER BY w.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
             WITH ORDINALITY w(word, place)), 100000), '');
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION pick_json(p_document jsonb, p_tree jsonb)
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    -- A copy in hand: a long document is unpacked here, and not at each look into it.
    v_document jsonb := CASE WHEN jsonb_typeof(p_document) = 'object' THEN p_document || '{}' ELSE p_document END;
    v_picked jsonb := '{}';
    v_name text;
    v_inner jsonb;
    v_there jsonb;
BEGIN
    FOR v_name, v_inner IN SELECT m.key, m.value FROM jsonb_each(p_tree) m LOOP
        v_there := point_at(v_document, ARRAY[v_name]);
        IF v_there IS NULL THEN
            CONTINUE;
        ELSIF v_inner = 'true'::jsonb THEN
            v_picked := v_picked || jsonb_build_object(v_name, v_there);
        ELSIF jsonb_typeof(v_there) IN ('object', 'array') THEN
            v_picked := v_picked || jsonb_build_object(v_name, pick_json(v_there, v_inner));
        END IF;
    END LOOP;
    RETURN v_picked;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION point_at(p_document jsonb, p_tokens text[])
RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
    v_found jsonb := p_document;
    v_token text;
BEGIN
    FOREACH v_token IN ARRAY p_tokens LOOP
        v_found := CASE
            WHEN jsonb_typeof(v_found) = 'object' THEN v_found -> v_token
            WHEN jsonb_typeof(v_found) = 'array' AND v_token ~ '^(0|[1-9][0-9]{0,8})$' THEN v_found -> v_token::int
        END;
    END LOOP;
    RETURN v_found;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION reach_of(p_tenant text, p_project text, OUT objects uuid[], OUT relationships uuid[])
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_own uuid;
    v_shared uuid;
BEGIN
    SELECT b.branch_id INTO v_own FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id = p_project AND b.name = 'main';
    SELECT b.branch_id INTO v_shared FROM branches b
    WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main';
    objects := array_remove(ARRAY[v_own], NULL);
    relationships := objects;
    IF EXISTS (SELECT FROM graph_objects x WHERE x.tenant_id = p_tenant AND x.branch_id = v_shared) THEN
        objects := objects || v_shared;
        IF EXISTS (SELECT FROM graph_relationships x WHERE x.tenant_id = p_tenant AND x.branch_id = v_shared) THEN
            relationships := relationships || v_shared;
        END IF;
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION relink_object(p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_gone uuid[];
    v_count bigint := 0;
    r record;
BEGIN
    v_gone := ARRAY(
        SELECT x.canonical_id FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.src_id = p_object AND x.deleted_with IS NOT NULL
        UNION
        SELECT x.canonical_id FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.dst_id = p_object AND x.deleted_with IS NOT NULL);
    IF v_gone = '{}' THEN
        RETURN 0;
    END IF;
    PERFORM FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND o.canonical_id IN (
        SELECT e.id FROM graph_relationships x CROSS JOIN LATERAL (VALUES (x.src_id), (x.dst_id)) e(id)
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_gone) AND e.id <> p_object)
    ORDER BY o.canonical_id, o.branch_id FOR SHARE;
    PERFORM hold_types(v_tenant, ARRAY(
        SELECT DISTINCT x.type FROM graph_relationships x
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_gone)), false);
    FOR r IN
        SELECT x.*, m.one_src AS now_one_src, m.one_dst AS now_one_dst, make_id() AS next_id FROM graph_relationships x
        CROSS JOIN LATERAL multiplicity_of(v_tenant, x.type) m
        WHERE x.tenant_id = v_tenant AND x.canonical_id = ANY (v_gone) AND x.deleted_with IS NOT NULL
        ORDER BY x.updated_at DESC, x.canonical_id FOR UPDATE OF x
    LOOP
        CONTINUE WHEN EXISTS (
                SELECT FROM graph_objects o
                WHERE o.tenant_id = v_tenant AND o.canonical_id IN (r.src_id, r.dst_id) AND o.deleted_at IS NOT NULL)
            OR EXISTS (
                SELECT FROM graph_relationships o
                WHERE o.tenant_id = v_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id AND o.type = r.type
                  AND (o.dst_id = r.dst_id OR r.now_one_src) AND o.deleted_at IS NULL AND o.suppression = 0)
            OR (r.now_one_dst AND EXISTS (
                SELECT FROM graph_relationships o
                WHERE o.tenant_id = v_tenant AND o.branch_id = r.branch_id AND o.dst_id = r.dst_id AND o.type = r.type
                  AND o.deleted_at IS NULL AND o.suppression = 0));
        BEGIN
            UPDATE graph_relationships x
            SET version_id = r.next_id, version = r.version + 1, deleted_at = NULL, updated_at = p_now,
                deleted_with = NULL, one_src = r.now_one_src, one_dst = r.now_one_dst
            WHERE x.tenant_id = v_tenant AND x.canonical_id = r.canonical_id AND x.branch_id = r.branch_id;
        EXCEPTION WHEN unique_violation THEN
            CONTINUE;
        END;
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, suppression,
            supersedes_id, change_summary, written_by, created_at)
        VALUES (v_tenant, r.branch_id, r.canonical_id, r.next_id, r.version + 1, r.project_id, r.type, r.src_id,
                r.dst_id, r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence,
                r.content_hash, r.schema_version, r.suppression, r.version_id, end_summary(r.properties, 'restored'),
                p_agent, p_now);
        v_count := v_count + 1;
    END LOOP;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION restore_objects(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_hidden uuid[];
    v_changed uuid[];
    v_edges uuid[];
    v_levels smallint[];
    v_head record;
BEGIN
    -- Whoever changes one of them finishes first; who comes later sees that it is hidden.
    PERFORM FROM graph_objects o
    JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_object_versions v
          WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects)) v
        ON v.branch_id = o.branch_id AND v.canonical_id = o.canonical_id
    WHERE o.tenant_id = p_tenant ORDER BY o.canonical_id, o.branch_id FOR UPDATE OF o;
    v_changed := ARRAY(
        SELECT l.id FROM object_levels(p_tenant, p_objects) l
        WHERE EXISTS (SELECT FROM graph_object_versions v
                      WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level));
    v_edges := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));

    -- 1. Objects: those to be hidden at once, those that come back one after the other.
    IF cardinality(v_changed) > 0 THEN
        v_edges := v_edges || ARRAY(
            SELECT DISTINCT r.canonical_id FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (v_changed) OR r.dst_id = ANY (v_changed)));
        v_hidden := ARRAY(SELECT l.id FROM object_levels(p_tenant, v_changed) l WHERE l.level > 0);
        UPDATE graph_objects o SET suppression = l.level FROM object_levels(p_tenant, v_hidden) l
        WHERE o.tenant_id = p_tenant AND o.canonical_id = l.id AND o.suppression <> l.level;
        FOR v_head IN
            SELECT o.* FROM graph_objects o
            WHERE o.tenant_id = p_tenant AND o.canonical_id = ANY (v_changed) AND o.canonical_id <> ALL (v_hidden)
              AND o.suppression > 0
            ORDER BY o.created_at, o.canonical_id, o.branch_id
        LOOP
            IF v_head.deleted_at IS NULL AND EXISTS (
                SELECT FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.type = v_head.type
                  AND o.key = v_head.key AND o.deleted_at IS NULL AND o.suppression = 0) THEN
                PERFORM retire_object(p_tenant, v_head.branch_id, v_head.canonical_id, v_agent, v_now);
            END IF;
            UPDATE graph_objects o SET suppression = 0
            WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.canonical_id = v_head.canonical_id;
            PERFORM queue_units(p_tenant, v_head.project_id, 'object', ARRAY[v_head.canonical_id]);
        END LOOP;
        UPDATE graph_object_versions v SET suppression = l.level FROM object_levels(p_tenant, v_changed) l
        WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
        -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
        DELETE FROM embeddings x
        WHERE x.tenant_id = p_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
          AND x.owner_kind = 'object' AND x.owner_id = ANY (v_hidden);
        DELETE FROM embedding_queue q
        USING (SELECT DISTINCT v.project_id FROM graph_object_versions v
               WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_hidden)) p
        WHERE q.tenant_id = p_tenant AND q.project_id = p.project_id
          AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'object'
          AND q.owner_id = ANY (v_hidden);
    END IF;

    -- 2. Relationships: as hidden as the most hidden of what they say and of their ends.
    IF cardinality(v_edges) > 0 THEN
        PERFORM FROM graph_relationships r
        JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_relationship_versions v
              WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_edges)) v
            ON v.branch_id = r.branch_id AND v.canonical_id = r.canonical_id
        WHERE r.tenant_id = p_tenant ORDER BY r.canonical_id, r.branch_id FOR UPDATE OF r;
        WITH ends AS MATERIALIZED (
            SELECT DISTINCT v.canonical_id AS edge, x.id FROM graph_relationship_versions v
            CROSS JOIN LATERAL (VALUES (v.canonical_id), (v.src_id), (v.dst_id)) x(id)
            WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_edges)
        ), settled AS (
            SELECT e.edge, CASE WHEN bool_or(l.level = 1) THEN 1 WHEN bool_or(l.level = 2) THEN 2 ELSE 0 END AS level
            FROM ends e JOIN object_levels(p_tenant, ARRAY(SELECT x.id FROM ends x)) l ON l.id = e.id
            GROUP BY e.edge
        )
        SELECT array_agg(s.edge), array_agg(s.level::smallint) INTO v_edges, v_levels FROM settled s;
        UPDATE graph_relationships r SET suppression = l.level FROM unnest(v_edges, v_levels) l(id, level)
        WHERE r.tenant_id = p_tenant AND r.canonical_id = l.id AND l.level > 0 AND r.suppression <> l.level;
        FOR v_head IN
            SELECT r.* FROM graph_relationships r JOIN unnest(v_edges, v_levels) l(id, level) ON l.id = r.canonical_id
            WHERE r.tenant_id = p_tenant AND l.level = 0 AND r.suppression > 0
            ORDER BY r.created_at, r.canonical_id, r.branch_id
        LOOP
            IF v_head.deleted_at IS NULL AND EXISTS (
                SELECT FROM graph_relationships r
                WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.src_id = v_head.src_id
                  AND r.type = v_head.type AND (r.dst_id = v_head.dst_id OR (r.one_src AND v_head.one_src))
                  AND r.deleted_at IS NULL AND r.suppression = 0
                UNION ALL
                SELECT FROM graph_relationships r
                WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.dst_id = v_head.dst_id
                  AND r.type = v_head.type AND r.one_dst AND v_head.one_dst
                  AND r.deleted_at IS NULL AND r.suppression = 0) THEN
                PERFORM retire_relationship(p_tenant, v_head.branch_id, v_head.canonical_id, v_agent, v_now);
            END IF;
            UPDATE graph_relationships r SET suppression = 0
            WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.canonical_id = v_head.canonical_id;
        END LOOP;
        UPDATE graph_relationship_versions v SET suppression = l.level FROM unnest(v_edges, v_levels) l(id, level)
        WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
    END IF;

    UPDATE object_entity_mentions x SET suppression = l.level FROM object_levels(p_tenant, p_objects || v_edges) l
    WHERE x.tenant_id = p_tenant AND x.canonical_id = l.id AND x.suppression <> l.level;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION retire_object(
    p_tenant text, p_branch uuid, p_object uuid, p_agent text, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_version uuid := make_id();
BEGIN
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
        supersedes_id, change_summary, written_by, created_at)
    SELECT o.tenant_id, o.branch_id, o.canonical_id, v_version, o.version + 1, o.project_id, o.type, o.subtype, o.key,
           o.title, o.status, o.labels, o.effective_from, o.effective_to, o.properties, o.evidence, o.content_hash,
           o.schema_version, p_now, o.suppression, o.version_id,
           end_summary(o.properties, 'deleted'), p_agent, p_now
    FROM graph_objects o
    WHERE o.tenant_id = p_tenant AND o.branch_id = p_branch AND o.canonical_id = p_object;
    UPDATE graph_objects o
    SET version_id = v_version, version = o.version + 1, deleted_at = p_now, updated_at = p_now, terms = ''
    WHERE o.tenant_id = p_tenant AND o.branch_id = p_branch AND o.canonical_id = p_object;
    PERFORM unlink_object(p_agent, p_object, p_now);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION retire_relationship(
    p_tenant text, p_branch uuid, p_relationship uuid, p_agent text, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_version uuid := make_id();
BEGIN
    INSERT INTO graph_relationship_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
        role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
        supersedes_id, change_summary, written_by, created_at)
    SELECT r.tenant_id, r.branch_id, r.canonical_id, v_version, r.version + 1, r.project_id, r.type, r.src_id, r.dst_id,
           r.weight, r.role_src, r.role_dst, r.valid_from, r.valid_to, r.properties, r.evidence, r.content_hash,
           r.schema_version, p_now, r.suppression, r.version_id,
           end_summary(r.properties, 'deleted'), p_agent, p_now
    FROM graph_relationships r
    WHERE r.tenant_id = p_tenant AND r.branch_id = p_branch AND r.canonical_id = p_relationship;
    UPDATE graph_relationships r
    SET version_id = v_version, version = r.version + 1, deleted_at = p_now, updated_at = p_now
    WHERE r.tenant_id = p_tenant AND r.branch_id = p_branch AND r.canonical_id = p_relationship;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION settle_objects(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_ends uuid[];
BEGIN
    IF p_tenant IS DISTINCT FROM nullif(current_setting('app.tenant_id', true), '') THEN
        RAISE EXCEPTION 'settle_objects needs the scope of the tenant' USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = p_tenant) THEN
        RETURN;
    END IF;
    v_ends := ARRAY(
        SELECT x.id FROM graph_relationship_versions v CROSS JOIN LATERAL (VALUES (v.src_id), (v.dst_id)) x(id)
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));
    IF EXISTS (SELECT FROM object_levels(p_tenant, p_objects || v_ends) l WHERE l.level > 0)
       OR EXISTS (SELECT FROM graph_object_versions v
                  WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects) AND v.suppression > 0)
       OR EXISTS (SELECT FROM graph_relationship_versions v
                  WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects) AND v.suppression > 0) THEN
        PERFORM restore_objects(p_tenant, p_objects);
    END IF;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_objects(p_tenant text, p_agent text, p_rows json, p_now timestamptz)
RETURNS TABLE (canonical_id uuid)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    v_stored uuid[];
BEGIN
    WITH made AS (
        INSERT INTO graph_objects AS o (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status,
            labels, effective_from, effective_to, properties, evidence, content_hash, schema_version, created_at,
            updated_at, terms, embed_text)
        SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.subtype, r.key,
               r.title, r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
               decode(r.content_hash, 'hex'), r.schema_version, p_now, p_now,
               CASE WHEN r.searched THEN object_terms(p_tenant, r.project_id, r.title, r.key, r.labels,
                                                      object_words(r.properties)) ELSE '' END,
               r.embed_text
        FROM json_to_recordset(p_rows) AS r(
            branch_id uuid, canonical_id uuid, project_id text, type text, subtype text, key text, title text,
            status text, labels text[], effective_from timestamptz, effective_to timestamptz, properties jsonb,
            evidence jsonb, content_hash text, schema_version int, searched boolean, embed_text text)
        ORDER BY r.type, r.key, r.canonical_id
        ON CONFLICT DO NOTHING
        RETURNING o.canonical_id
    ) SELECT coalesce(array_agg(m.canonical_id), '{}') INTO v_stored FROM made m;
    INSERT INTO graph_object_versions (
        tenant_id, branch_id, canonical_id, version_id, version, project_id, type, subtype, key, title, status, labels,
        effective_from, effective_to, properties, evidence, content_hash, schema_version, change_summary, written_by,
        created_at)
    SELECT p_tenant, r.branch_id, r.canonical_id, r.canonical_id, 1, r.project_id, r.type, r.subtype, r.key, r.title,
           r.status, r.labels, r.effective_from, r.effective_to, r.properties, r.evidence,
           decode(r.content_hash, 'hex'), r.schema_version, r.change_summary, p_agent, p_now
    FROM json_to_recordset(p_rows) AS r(
        branch_id uuid, canonical_id uuid, project_id text, type text, subtype text, key text, title text,
        status text, labels text[], effective_from timestamptz, effective_to timestamptz, properties jsonb,
        evidence jsonb, content_hash text, schema_version int, change_summary jsonb)
    WHERE r.canonical_id = ANY (v_stored);
    PERFORM queue_units(p_tenant, q.project_id, 'object', q.ids)
    FROM (SELECT r.project_id, array_agg(r.canonical_id) AS ids
          FROM json_to_recordset(p_rows) AS r(canonical_id uuid, project_id text, embed_text text)
          WHERE r.project_id IS NOT NULL AND r.embed_text IS NOT NULL AND r.canonical_id = ANY (v_stored)
          GROUP BY r.project_id) q;
    PERFORM settle_objects(p_tenant, v_stored);
    RETURN QUERY SELECT unnest(v_stored);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION traverse_objects(
    p_tenant text, p_project text, p_roots uuid[], p_steps jsonb, p_depth int, p_cap int, p_most int,
    p_after_depth int, p_after uuid, p_back boolean, p_limit int)
RETURNS TABLE (
    problem text, roots text[], nodes text, edges text, total int, edge_count int, starts int, ends int,
    first_depth int, first_id text, last_depth int, last_id text, depth_reached int, truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET work_mem = 65536
AS $$
#variable_conflict use_column
DECLARE
    v_reach record;
    v_roots uuid[];
    w record;
    v_from int;
    v_to int;
BEGIN
    v_reach := reach_of(p_tenant, p_project);
    v_roots := ARRAY(
        SELECT DISTINCT f.canonical_id FROM find_roots(p_tenant, v_reach.objects, p_roots, NULL) f ORDER BY 1);
    IF v_roots = '{}' THEN
        problem := 'object_not_found';
        RETURN NEXT;
        RETURN;
    END IF;
    roots := v_roots::text[];
    w := walk_objects(
        p_tenant, v_reach.objects, v_reach.relationships, v_roots, p_steps, false, true, p_depth, NULL, p_most, p_cap,
        p_most, false, '{"fields": ["type", "key", "labels"]}');
    total := cardinality(w.nodes);
    depth_reached := coalesce(w.depths[total], 0);
    truncated := w.overflow IS NOT NULL;
    SELECT least(count(*), p_most) INTO edge_count FROM (SELECT DISTINCT e.id FROM unnest(w.edges) e(id)) d;
    IF p_back THEN
        SELECT count(*) INTO v_to FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE p_after IS NULL OR (n.depth, n.id) < (p_after_depth, p_after);
        v_from := greatest(1, v_to - p_limit + 1);
    ELSE
        SELECT count(*) + 1 INTO v_from FROM unnest(w.nodes, w.depths) n(id, depth)
        WHERE (n.depth, n.id) <= (p_after_depth, p_after);
        v_to := least(total, v_from + p_limit - 1);
    END IF;
    starts := v_from - 1;
    ends := v_to - 1;
    first_depth := w.depths[v_from];
    first_id := w.nodes[v_from];
    last_depth := w.depths[v_to];
    last_id := w.nodes[v_to];
    nodes := array_to_string(w.fragments[v_from:v_to], ',');
    SELECT string_agg('{"id":"' || e.id || '","type":' || to_json(e.type) || ',"src_id":"' || e.src || '","dst_id":"'
                      || e.dst || '"}', ',' ORDER BY greatest(s.place, d.place), e.id)
    INTO edges
    FROM (
        SELECT c.* FROM (
            SELECT DISTINCT ON (e.id) e.id, CASE WHEN e.out THEN e.here ELSE e.there END AS src,
                   CASE WHEN e.out THEN e.there ELSE e.here END AS dst, e.type, e.level
            FROM unnest(w.edges, w.heres, w.theres, w.outs, w.types, w.levels) e(id, here, there, out, type, level)
            ORDER BY e.id, e.level
        ) c
        ORDER BY c.level, c.id LIMIT p_most
    ) e
    JOIN unnest(w.nodes) WITH ORDINALITY s(id, place) ON s.id = e.src
    JOIN unnest(w.nodes) WITH ORDINALITY d(id, place) ON d.id = e.dst
    WHERE greatest(s.place, d.place) BETWEEN v_from AND v_to;
    RETURN NEXT;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION unlink_object(p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_count bigint;
BEGIN
    WITH held AS (
        SELECT r.branch_id, r.canonical_id, r.version_id, make_id() AS next_id FROM graph_relationships r
        WHERE r.tenant_id = v_tenant AND r.deleted_at IS NULL
          AND r.branch_id IN (SELECT b.branch_id FROM branches b WHERE b.tenant_id = v_tenant)
          AND (r.src_id = p_object OR r.dst_id = p_object)
        ORDER BY r.canonical_id, r.branch_id FOR UPDATE
    ), gone AS (
        UPDATE graph_relationships r
        SET version_id = h.next_id, version = r.version + 1, deleted_at = p_now, updated_at = p_now,
            deleted_with = p_object
        FROM held h
        WHERE r.tenant_id = v_tenant AND r.canonical_id = h.canonical_id AND r.branch_id = h.branch_id
        RETURNING r.*, h.version_id AS before_id
    ), told AS (
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
            supersedes_id, change_summary, written_by, created_at)
        SELECT g.tenant_id, g.branch_id, g.canonical_id, g.version_id, g.version, g.project_id, g.type, g.src_id,
               g.dst_id, g.weight, g.role_src, g.role_dst, g.valid_from, g.valid_to, g.properties, g.evidence,
               g.content_hash, g.schema_version, g.deleted_at, g.suppression, g.before_id,
               end_summary(g.properties, 'deleted'), p_agent, p_now
        FROM gone g
        RETURNING version_id
    ) SELECT count(*) INTO v_count FROM told;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION used_elsewhere(p_kind text, p_type text)
RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN EXISTS (
        SELECT FROM branches b
        CROSS JOIN LATERAL (
            SELECT FROM graph_objects o
            WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.type = p_type
              AND o.deleted_at IS NULL AND o.project_id IS DISTINCT FROM v_project LIMIT 1) x
        WHERE b.tenant_id = v_tenant)
    OR EXISTS (
        SELECT FROM branches b
        CROSS JOIN LATERAL (
            SELECT FROM graph_relationships r
            WHERE p_kind = 'relationship' AND r.tenant_id = v_tenant AND r.branch_id = b.branch_id AND r.type = p_type
              AND r.deleted_at IS NULL AND r.project_id IS DISTINCT FROM v_project LIMIT 1) x
        WHERE b.tenant_id = v_tenant);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION walk_objects(
    p_tenant text, p_objects uuid[], p_relationships uuid[], p_roots uuid[], p_steps jsonb, p_phased boolean,
    p_strict boolean, p_depth int, p_time timestamptz, p_fan int, p_cap int, p_most int, p_ways boolean,
    p_include jsonb,
    OUT nodes uuid[], OUT depths int[], OUT fragments text[], OUT parents uuid[], OUT links uuid[],
    OUT edges uuid[], OUT heres uuid[], OUT theres uuid[], OUT outs boolean[], OUT types text[],
    OUT weights double precision[], OUT levels int[], OUT overflow text)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
SET work_mem = 65536
AS $$
#variable_conflict use_column
DECLARE
    v_fragment text := fragment_clause(p_include);
    v_step jsonb;
    v_side text[];
    v_branch uuid;
    v_legs text[];
    v_cross text;
    v_look text;
    v_clause text;
    v_front uuid[];
    v_room int;
    v_tried uuid[];
    v_new uuid[];
    v_texts text[];
    v_edges uuid[];
    v_heres uuid[];
    v_theres uuid[];
    v_outs boolean[];
    v_types text[];
    v_weights double precision[];
    v_beyond text;
    v_hubs uuid[];
    v_hub boolean;
    v_reached uuid[];
    v_parents uuid[];
    v_links uuid[];
    -- How much text is told at the most, and how many objects are read at a time where each may be long.
    v_bytes bigint := 33554432;
    v_slice int := CASE WHEN p_include ? 'properties' OR p_include -> 'fields' ? 'evidence' THEN 100 ELSE 20000 END;
    v_seen record;
    -- As much as one level crosses, whatever the bounds of the request; what goes beyond it ends the walk.
    c_level CONSTANT int := 1000000;
    v_full boolean;
BEGIN
    nodes := '{}'; depths := '{}'; fragments := '{}'; parents := '{}'; links := '{}';
    edges := '{}'; heres := '{}'; theres := '{}'; outs := '{}'; types := '{}'; weights := '{}'; levels := '{}';
    FOR v_level IN 0 .. p_depth LOOP
        -- What is asked is composed anew where it differs from the level before; every value in it is a quoted literal.
        IF v_level <= 1 OR p_phased THEN
            v_step := p_steps -> CASE WHEN p_phased AND v_level > 0 THEN v_level - 1 ELSE 0 END;
            v_clause := CASE WHEN p_time IS NULL THEN '' ELSE format(
                ' AND coalesce(x.effective_from <= %1$L::timestamptz, true)'
                ' AND coalesce(x.effective_to > %1$L::timestamptz, true)', p_time) END;
            IF v_level > 0 OR p_strict THEN
                v_clause := v_clause
                    || CASE WHEN v_step ? 'node_types' THEN format(' AND x.type = ANY (%L::text[])',
                           ARRAY(SELECT jsonb_array_elements_text(v_step -> 'node_types'))) ELSE '' END
                    || CASE WHEN v_step ? 'labels' THEN format(' AND x.labels && %L::text[]',
                           ARRAY(SELECT jsonb_array_elements_text(v_step -> 'labels'))) ELSE '' END
                    || filter_clause(v_step -> 'node');
            END IF;
            v_look := format(
                'SELECT array_agg(n.canonical_id), array_agg(n.fragment) FROM ('
                'SELECT n.canonical_id, n.fragment FROM unnest($1) WITH ORDINALITY o(id, place) CROSS JOIN LATERAL ('
                'SELECT x.canonical_id, concat(''{"id":"'', x.canonical_id, ''"''%s, $3) AS fragment '
                'FROM graph_objects x WHERE x.tenant_id = %L AND x.branch_id %s '
                'AND x.canonical_id = o.id AND x.deleted_at IS NULL%s OFFSET 0) n ORDER BY o.place LIMIT $2) n',
                v_fragment, p_tenant,
                CASE WHEN cardinality(p_objects) = 1 THEN format('= %L', p_objects[1])
                     ELSE format('= ANY (%L::uuid[])', p_objects) END,
                v_clause);
        END IF;
        IF v_level = 0 THEN
            v_tried := ARRAY(SELECT DISTINCT r.id FROM unnest(p_roots) r(id) ORDER BY r.id);
            v_seen := look_at_objects(v_look, v_tried, p_cap + 1, ',"depth":0}', v_slice, v_bytes);
            v_new := v_seen.ids;
            v_texts := v_seen.texts;
            v_bytes := v_bytes - v_seen.bytes;
            v_front := coalesce(v_new[:p_cap], '{}');
            IF cardinality(v_new) > p_cap OR v_seen.is_full THEN
                overflow := 'node';
            END IF;
            nodes := v_front;
            fragments := coalesce(v_texts[:p_cap], '{}');
            depths := array_fill(0, ARRAY[cardinality(v_front)]);
            parents := array_fill(NULL::uuid, ARRAY[cardinality(v_front)]);
            links := parents;
            EXIT WHEN overflow = 'node' OR v_front = '{}';
            CONTINUE;
        END IF;
        IF v_level = 1 OR p_phased THEN
            v_clause := CASE WHEN v_step ? 'edge_types' THEN format(' AND x.type = ANY (%L::text[])',
                    ARRAY(SELECT jsonb_array_elements_text(v_step -> 'edge_types'))) ELSE '' END
                || CASE WHEN p_time IS NULL THEN '' ELSE format(
                    ' AND coalesce(x.valid_from <= %1$L::timestamptz, true)'
                    ' AND coalesce(x.valid_to > %1$L::timestamptz, true)', p_time) END
                || filter_clause(v_step -> 'edge');
            v_legs := '{}';
            FOREACH v_branch IN ARRAY p_relationships LOOP
                IF v_step ->> 'direction' <> 'in' THEN
                    v_legs := v_legs || format(
                        '(SELECT x.canonical_id, x.dst_id AS there, true AS out, x.type, x.weight '
                        'FROM graph_relationships x WHERE x.tenant_id = %L AND x.branch_id = %L AND x.src_id = f.id '
                        'AND x.deleted_at IS NULL%s ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                        p_tenant, v_branch, v_clause, p_fan + 1);
                END IF;
                IF v_step ->> 'direction' <> 'out' THEN
                    v_legs := v_legs || format(
                        '(SELECT x.canonical_id, x.src_id AS there, false AS out, x.type, x.weight '
                        'FROM graph_relationships x WHERE x.tenant_id = %L AND x.branch_id = %L AND x.dst_id = f.id '
                        'AND x.deleted_at IS NULL%s%s '
                        'ORDER BY x.weight DESC NULLS LAST, x.canonical_id DESC LIMIT %s)',
                        p_tenant, v_branch, v_clause,
                        CASE WHEN v_step ->> 'direction' = 'both' THEN ' AND x.src_id <> x.dst_id' ELSE '' END,
                        p_fan + 1);
                END IF;
            END LOOP;
            v_beyond := format('(SELECT u.* FROM (%s) u ORDER BY u.weight DESC NULLS LAST, u.canonical_id DESC',
                               array_to_string(v_legs, ' UNION ALL '));
            v_cross := format(
                'SELECT array_agg(c.canonical_id), array_agg(c.id), array_agg(c.there), array_agg(c.out), '
                'array_agg(c.type), array_agg(c.weight) FROM ('
                'SELECT e.*, f.id FROM unnest($1) f(id) CROSS JOIN LATERAL %s LIMIT %s) e LIMIT %s) c',
                v_beyond, p_fan, c_level + 1);
            v_beyond := format(
                'SELECT EXISTS (SELECT FROM unnest($1) f(id) CROSS JOIN LATERAL %s OFFSET %s LIMIT 1) e)',
                v_beyond, p_fan);
        END IF;
        EXIT WHEN v_legs = '{}';
        EXECUTE v_cross INTO v_edges, v_heres, v_theres, v_outs, v_types, v_weights USING v_front;
        EXIT WHEN v_edges IS NULL;
        v_full := cardinality(v_edges) > c_level;
        -- Whose edges are as many as are crossed may have more.
        IF cardinality(v_edges) >= p_fan THEN
            v_hubs := ARRAY(SELECT h.id FROM unnest(v_heres) h(id) GROUP BY h.id HAVING count(*) = p_fan);
            IF v_hubs <> '{}' THEN
                EXECUTE v_beyond INTO v_hub USING v_hubs;
                IF v_hub THEN
                    overflow := 'edge';
                END IF;
            END IF;
        END IF;
        v_room := p_cap - cardinality(nodes);
        -- Joins of arrays go by hash: nested loops would grow with the square.
        IF p_phased THEN
            v_tried := ARRAY(SELECT DISTINCT e.id FROM unnest(v_theres) e(id) ORDER BY e.id);
            v_seen := look_at_objects(v_look, v_tried, NULL, format(',"depth":%s}', v_level), v_slice, v_bytes);
            v_reached := v_seen.ids;
            v_texts := v_seen.texts;
            SELECT array_agg(n.id ORDER BY n.id), array_agg(n.fragment ORDER BY n.id) INTO v_new, v_texts
            FROM unnest(v_reached, v_texts) n(id, fragment)
            WHERE NOT EXISTS (SELECT FROM unnest(nodes) s(id) WHERE s.id = n.id);
            v_front := ARRAY(
                SELECT n.id FROM unnest(v_reached) n(id)
                WHERE NOT EXISTS (SELECT FROM unnest(v_new[v_room + 1 :]) s(id) WHERE s.id = n.id) ORDER BY n.id);
        ELSE
            v_tried := ARRAY(
                SELECT DISTINCT e.id FROM unnest(v_theres) e(id)
                WHERE NOT EXISTS (SELECT FROM unnest(nodes) s(id) WHERE s.id = e.id) ORDER BY e.id);
            v_seen := look_at_objects(v_look, v_tried, v_room + 1, format(',"depth":%s}', v_level), v_slice, v_bytes);
            v_new := v_seen.ids;
            v_texts := v_seen.texts;
            v_front := coalesce(v_new[:v_room], '{}');
        END IF;
        v_bytes := v_bytes - v_seen.bytes;
        IF cardinality(v_new) > v_room OR v_seen.is_full THEN
            overflow := 'node';
            v_new := v_new[:v_room];
            v_texts := v_texts[:v_room];
        END IF;
        v_new := coalesce(v_new, '{}');
        IF cardinality(v_tried) > cardinality(v_front) THEN
            -- Some lead to where nobody is, or may be: what is crossed has both its ends in the answer.
            v_reached := CASE WHEN p_phased THEN v_front ELSE nodes || v_new END;
            SELECT array_agg(e.id), array_agg(e.here), array_agg(e.there), array_agg(e.out), array_agg(e.type),
                   array_agg(e.weight)
            INTO v_edges, v_heres, v_theres, v_outs, v_types, v_weights
            FROM unnest(v_edges, v_heres, v_theres, v_outs, v_types, v_weights) e(id, here, there, out, type, weight)
            WHERE EXISTS (SELECT FROM unnest(v_reached) s(id) WHERE s.id = e.there);
            EXIT WHEN v_edges IS NULL;
        END IF;
        IF p_ways AND v_new <> '{}' THEN
            SELECT array_agg(w.here ORDER BY w.there), array_agg(w.id ORDER BY w.there) INTO v_parents, v_links
            FROM (
                SELECT DISTINCT ON (e.there) e.there, e.here, e.id
                FROM unnest(v_edges, v_heres, v_theres, v_weights) e(id, here, there, weight)
                WHERE EXISTS (SELECT FROM unnest(v_new) s(id) WHERE s.id = e.there)
                ORDER BY e.there, e.here, e.weight DESC NULLS LAST, e.id DESC
            ) w;
            parents := parents || v_parents;
            links := links || v_links;
        END IF;
        nodes := nodes || v_new;
        fragments := fragments || v_texts;
        depths := depths || array_fill(v_level, ARRAY[cardinality(v_new)]);
        edges := edges || v_edges;
        heres := heres || v_heres;
        theres := theres || v_theres;
        outs := outs || v_outs;
        types := types || v_types;
        weights := weights || v_weights;
        levels := levels || array_fill(v_level, ARRAY[cardinality(v_edges)]);
        EXIT WHEN overflow = 'node';
        IF v_full THEN
            overflow := 'edge';
            EXIT;
        END IF;
        IF cardinality(edges) > p_most
            AND (SELECT count(*) FROM (SELECT DISTINCT e.id FROM unnest(edges) e(id)) d) > p_most THEN
            overflow := 'edge';
            EXIT;
        END IF;
        EXIT WHEN v_front = '{}';
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION count_documents(p_kind text, p_terms text[], p_most int)
RETURNS bigint[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_branches uuid[];
    v_counts bigint[] := '{}';
    v_keys text[];
    v_count bigint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RETURN v_counts;
    END IF;
    IF p_kind = 'object' THEN
        v_branches := main_branches(v_tenant, v_project);
    END IF;
    FOR i IN 1 .. cardinality(p_terms) LOOP
        v_keys := lexical_keys(v_tenant, v_project, p_terms[i:i]);
        IF p_kind = 'object' THEN
            v_keys := v_keys || lexical_keys(v_tenant, '', p_terms[i:i]);
        END IF;
        IF p_kind = 'note' THEN
            SELECT count(*) INTO v_count FROM (
                SELECT FROM memory_notes n
                WHERE lexical_keys(n.tenant_id, n.project_id, tsvector_to_array(n.terms)) && v_keys
                  AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
                  AND n.deleted_at IS NULL AND n.suppression = 0
                  AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
                  AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
                LIMIT p_most) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*) INTO v_count FROM (
                SELECT FROM graph_objects o
                WHERE lexical_keys(o.tenant_id, coalesce(o.project_id, ''), tsvector_to_array(o.terms)) && v_keys
                  AND o.tenant_id IS NOT DISTINCT FROM v_tenant
                  AND (o.project_id IS NULL OR o.project_id IS NOT DISTINCT FROM v_project)
                  AND o.branch_id = ANY (v_branches) AND o.deleted_at IS NULL AND o.suppression = 0
                LIMIT p_most) d;
        ELSE
            SELECT count(*) INTO v_count FROM (
                SELECT FROM graph_facts f
                WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
                  AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
                  AND f.retracted_at IS NULL AND f.suppression = 0
                  AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
                  AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
                LIMIT p_most) d;
        END IF;
        v_counts := v_counts || v_count;
    END LOOP;
    RETURN v_counts;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION diagnose_project(p_least double precision, p_sample int, p_revivable int)
RETURNS TABLE (
    settings jsonb, depth bigint, oldest_seconds double precision, ended bigint, dead bigint, failed bigint,
    revivable bigint, long_leases bigint, stale_leases bigint, notes bigint, deleted bigint, expired bigint,
    unindexed bigint, sampled bigint, stale bigint, embedding boolean, units bigint, vectors bigint, queued bigint,
    calls bigint, succeeded bigint, recoveries bigint, extractions bigint, graph_facts boolean, lost_links bigint,
    input_tokens bigint, output_tokens bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_since date;
    v_model smallint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'diagnose_project needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT p.settings INTO settings FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project;

    SELECT count(*), greatest(0, coalesce(extract(epoch FROM v_now - min(j.available_at)), 0))
    INTO depth, oldest_seconds FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'pending';
    SELECT count(*) FILTER (WHERE coalesce(j.started_at, j.created_at) < v_now - interval '10 minutes'),
           count(*) FILTER (WHERE j.lease_expires_at < v_now)
    INTO long_leases, stale_leases FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'leased';
    SELECT count(*) FILTER (WHERE j.status = 'dead'), count(*) FILTER (WHERE j.status = 'failed'),
           count(*) FILTER (WHERE j.kind = 'graph_link')
    INTO dead, failed, lost_links FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('dead', 'failed') AND j.finished_at >= v_now - interval '24 hours'
      AND j.project_id = v_project;
    -- The first condition is the index's; what was cancelled did not end by itself.
    SELECT dead + failed + count(*) INTO ended FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('completed', 'cancelled') AND j.status = 'completed'
      AND j.finished_at >= v_now - interval '24 hours' AND j.project_id = v_project;
    SELECT count(*) INTO revivable FROM find_revivable(v_tenant, v_project, p_revivable);

    SELECT count(*), count(*) FILTER (WHERE n.deleted_at IS NOT NULL),
           count(*) FILTER (WHERE n.deleted_at < v_now - interval '30 days'),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.terms_length = 0),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.extraction_status = 'completed')
    INTO notes, deleted, expired, unindexed, extractions FROM memory_notes n
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0;
    SELECT count(*), count(*) FILTER (WHERE s.terms <> note_terms(
               v_tenant, v_project, s.author, s.occurred_at, s.tags, s.content))
    INTO sampled, stale FROM (
        SELECT n.terms, n.author, n.occurred_at, n.tags, n.content FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0 AND n.deleted_at IS NULL
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_sample) s;

    SELECT m.model_id INTO v_model FROM embedding_models m WHERE m.active;
    embedding := v_model IS NOT NULL;
    IF embedding THEN
        units := notes - deleted
            + (SELECT count(*) FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_least
                 AND f.suppression = 0)
            + (SELECT count(*) FROM memory_cards c
               WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0)
            + (SELECT count(*) FROM branches b
               JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = b.branch_id
               WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main'
                 AND o.deleted_at IS NULL AND o.suppression = 0 AND o.embed_text IS NOT NULL);
        SELECT count(*) INTO vectors FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = v_model AND e.view = 'self' AND e.project_id = v_project
          AND e.suppression = 0;
        SELECT count(*) INTO queued FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = v_model;
    ELSE
        units := 0;
        vectors := 0;
        queued := 0;
    END IF;
    graph_facts := EXISTS (
        SELECT FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = 'pipeline');

    SELECT count(*), count(*) FILTER (WHERE c.succeeded) INTO calls, succeeded FROM (
        SELECT c.succeeded FROM llm_calls c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.created_at DESC LIMIT 100) c;
    SELECT count(*) INTO recoveries FROM memory_history h
    WHERE h.tenant_id = v_tenant AND h.history_id >= first_id(v_now - interval '7 days') AND h.project_id = v_project
      AND h.event = 'recovered' AND h.created_at >= v_now - interval '7 days' AND h.suppression = 0;
    v_since := CASE coalesce(settings #>> '{pipeline,extraction_budget_period}', 'month')
        WHEN 'day' THEN (v_now AT TIME ZONE 'UTC')::date
        WHEN 'month' THEN date_trunc('month', v_now AT TIME ZONE 'UTC')::date
        ELSE '-infinity'::date END;
    SELECT coalesce(sum(u.input_tokens), 0), coalesce(sum(u.output_tokens), 0) INTO input_tokens, output_tokens
    FROM llm_usage u WHERE u.tenant_id = v_tenant AND u.project_id = v_project AND u.day >= v_since;
    RETURN NEXT;
END
$$;
""",
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
    v_cards uuid[];
    v_sourced uuid[];
    v_documents uuid[];
    v_objects uuid[];
    v_edges uuid[];
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
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_tombstone.entity_id, v_tombstone.scopes) d;
    IF coalesce(find_hold(v_tenant, v_project, v_tombstone.entity_id, v_tombstone.scopes, v_facts, v_notes),
                find_object_hold(v_tenant, v_objects, v_edges)) IS NOT NULL THEN
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
    v_ids := v_facts || v_notes || v_objects || v_edges || v_entities || ARRAY(
        SELECT v.version_id FROM graph_object_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id = ANY (v_objects)
        UNION ALL
        SELECT v.version_id FROM graph_relationship_versions v
        WHERE v.tenant_id = v_tenant AND v.canonical_id = ANY (v_edges)
        UNION ALL
        SELECT e.decoy_id FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.decoy_id IS NOT NULL);
    -- Documents that name it, or of which a part goes. What a hold keeps of others stays as it is.
    v_documents := ARRAY(
        SELECT d.document_id FROM documents d
        WHERE d.tenant_id = v_tenant AND d.project_id = v_project
          AND (EXISTS (SELECT FROM document_entity_mentions m
                       WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                         AND m.entity_id = v_tombstone.entity_id)
               OR EXISTS (SELECT FROM document_notes x
                          WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                            AND x.note_id = ANY (v_notes)))
          AND (v_whole OR d.scope = ANY (v_tombstone.scopes))
          AND NOT EXISTS (SELECT FROM document_entity_mentions m
                          JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = m.entity_id
                          WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                            AND d.scope = ANY (e.held_scopes)));
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
      AND (names_any(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND normalize(lower(j.last_error)) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR says(j.result, v_pattern)
                    OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR says(j.result, v_values)
                    OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    -- Of documents their traces alone stay: how many chunks they had, and when.
    UPDATE documents d
    SET title = NULL, source_url = NULL, error = NULL, raw_content = NULL, author = NULL, tags = '{}',
        content_hash = NULL, content_type = NULL,
        status = CASE WHEN d.status = 'done' THEN 'done' ELSE 'failed' END, updated_at = v_now
    WHERE d.tenant_id = v_tenant AND d.document_id = ANY (v_documents);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('documents', v_count);
    DELETE FROM memory_reviews r
    WHERE r.tenant_id = v_tenant
      AND (r.note_id = ANY (v_notes) OR r.target_note_id = ANY (v_notes)
           OR (v_tombstone.named AND r.project_id = v_project AND r.suppression <> 2
               AND (v_whole OR r.scope = ANY (v_tombstone.scopes))
               AND normalize(lower(concat_ws(' ', r.content, r.reason, r.decision_reason))) ~ v_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- What was once proposed about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (v_notes)
      AND (names_any(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND says(h.proposal, v_pattern)) OR says(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project
      AND (names_any(r.results::text, v_ids) OR names_any(r.request::text, v_ids)
           OR (v_tombstone.named AND says(r.request, v_pattern)) OR says(r.request, v_values));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    -- Terms that were counted are counted anew, without it.
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = v_tenant AND l.project_id = v_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', v_count);
    UPDATE lexical_statistics s SET counted_at = '-infinity'
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project;

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
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = v_tombstone.entity_id
          AND (v_whole OR c.scope = ANY (v_tombstone.scopes))
        -- And those of others, which told what goes or by whom it was said.
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (v_facts || v_notes || v_cards || v_objects);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card', 'object')
      AND x.owner_id = ANY (v_facts || v_notes || v_cards || v_objects);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
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
    -- Those of other scopes stay, and forget where they come from.
    UPDATE memory_notes n SET derived_from = NULL
    WHERE n.tenant_id = v_tenant AND n.derived_from = ANY (v_notes) AND n.note_id <> ALL (v_notes);
    DELETE FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_notes);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_notes', v_count);
    -- Objects with all their versions, and what starts or ends there.
    DELETE FROM object_entity_mentions m
    WHERE m.tenant_id = v_tenant
      AND (m.canonical_id = ANY (v_objects || v_edges) OR m.entity_id = ANY (v_entities));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('object_entity_mentions', v_count);
    UPDATE graph_entities e SET object_canonical_id = NULL
    WHERE e.tenant_id = v_tenant AND e.object_canonical_id = ANY (v_objects);
    FOREACH v_table IN ARRAY ARRAY['graph_relationship_versions', 'graph_relationships', 'graph_object_versions',
                                   'graph_objects'] LOOP
        EXECUTE format('DELETE FROM %I x WHERE x.tenant_id = $1 AND x.canonical_id = ANY ($2)', v_table)
        USING v_tenant, v_objects || v_edges;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    IF v_whole THEN
        DELETE FROM graph_entity_aliases a WHERE a.tenant_id = v_tenant AND a.entity_id = ANY (v_entities);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('graph_entity_aliases', v_count);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.merged_into = v_tombstone.entity_id;
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = v_tombstone.entity_id;
        PERFORM settle_documents(v_tenant, v_documents);
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
        DELETE FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.document_id = ANY (v_documents);
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM settle_documents(v_tenant, v_documents);
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
        'notes', cardinality(v_notes), 'objects', cardinality(v_objects)));
    RETURN QUERY SELECT NULL::text, jsonb_build_object(
        'entity_id', v_tombstone.entity_id, 'scope', to_jsonb(v_tombstone.scopes), 'counts', v_counts,
        'found', v_left, 'names', (v_pattern IS NOT NULL)::int, 'values', v_count_values,
        'requested_at', v_tombstone.created_at, 'completed_at', v_now);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION issue_tombstone(
    p_id uuid, p_entity json, p_scopes text[], p_reason text, p_hold boolean, p_erase boolean, p_erase_at timestamptz,
    p_named boolean, p_key text, p_job uuid)
RETURNS TABLE (refused text, entity_id uuid, canonical text, candidates uuid[], other uuid, created_at timestamptz,
               facts_hidden bigint, notes_hidden bigint, objects_hidden bigint)
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
    v_documents uuid[];
    v_objects uuid[];
    v_edges uuid[];
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
                            NULL::bigint, NULL::bigint;
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
                            NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    IF p_named THEN
        PERFORM link_mentions(v_tenant, v_project, v_entity.entity_id, p_scopes);
    END IF;
    IF p_erase THEN
        PERFORM link_holds(v_tenant, v_project);
        SELECT d.facts, d.notes INTO v_facts, v_notes
        FROM find_doomed(v_tenant, v_project, v_entity.entity_id, p_scopes) d;
        SELECT d.objects, d.relationships INTO v_objects, v_edges
        FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
        v_other := coalesce(find_hold(v_tenant, v_project, v_entity.entity_id, p_scopes, v_facts, v_notes),
                            find_object_hold(v_tenant, v_objects, v_edges));
        IF v_other IS NOT NULL THEN
            RETURN QUERY SELECT 'erasure_blocked', v_entity.entity_id, v_entity.canonical, NULL::uuid[], v_other,
                                NULL::timestamptz, NULL::bigint, NULL::bigint, NULL::bigint;
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
    v_documents := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_entity.entity_id
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes));
    SELECT d.objects, d.relationships INTO v_objects, v_edges
    FROM doomed_objects(v_tenant, v_entity.entity_id, p_scopes) d;
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents|graph)'
      AND names_any(encode(k.body, 'escape'),
                    v_notes || v_facts || v_documents || v_objects || v_edges || v_entity.entity_id);
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
                        cardinality(v_facts)::bigint, cardinality(v_notes)::bigint, cardinality(v_objects)::bigint;
END
$$;
""",
    r"""
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
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence, concat_ws(' ', o.type, o.subtype, o.key, o.title, o.status,
                       array_to_string(o.labels, ' '), o.properties, o.evidence) AS said
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(' ', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- As it is written down, so that what fields are called counts too; what JSON spells otherwise, by its values.
        WHERE normalize(lower(x.said)) ~ v_pattern
           -- In keys, addresses and names of types the words of a name are joined by something.
           OR normalize(lower(regexp_replace(x.said, '%20|[-_+./=:,;#@&|\\]+', ' ', 'g'))) ~ v_pattern
           OR (position('\' IN x.said) > 0 AND (says(x.properties, v_pattern) OR says(x.evidence, v_pattern)))
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
""",
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
    v_renamed uuid[];
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
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
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
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
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
$$;
""",
    """
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
-- Of the lookups: what is written out below is planned each time.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Named here so that what the function does to it ends with it.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_holds text := '';
    v_enough text := '';
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_found int;
BEGIN
    -- How many of this kind there are; cards and objects are few.
    IF p_kind NOT IN ('card', 'object') THEN
        SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
        INTO v_vectors FROM embedding_counts c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    END IF;
    IF v_vectors > 25000 THEN
        -- Of the index over the part of the table that has this tenant's vectors.
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
        FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
        WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
          AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                            WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $6, $7) OFFSET 0) h';
        v_enough := ' AND h.sure >= $9 AND h.sure > 0 AND h.sure * h.source_trust >= $10';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', least(greatest(90, 3 * p_limit / 2), 400)::text, true),
                set_config('hnsw.max_scan_tuples', '40000', true);
        PERFORM set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        RETURN QUERY EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
            '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
            'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id',
            p_dimensions, v_holds, v_mine, v_enough)
        USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            RETURN;
        END IF;
        -- Nothing of what the caller may read was met: then it is little, and is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_links(p_before timestamptz, p_limit int, OUT mentions bigint, OUT entities bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_entities uuid[];
    v_kept uuid[];
    v_count bigint;
BEGIN
    mentions := 0;
    entities := 0;
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN mentions >= p_limit;
        v_notes := due_notes(v_tenant, v_project, 'links', p_before, p_limit);
        CONTINUE WHEN cardinality(v_notes) = 0;
        WITH pick AS (
            SELECT m.note_id, m.entity_id FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.note_id = ANY (v_notes)
            ORDER BY m.note_id, m.entity_id LIMIT p_limit - mentions
        ), gone AS (
            DELETE FROM note_entity_mentions m USING pick
            WHERE m.tenant_id = v_tenant AND m.note_id = pick.note_id AND m.entity_id = pick.entity_id
            RETURNING m.note_id, m.entity_id
        )
        -- Only those that came with or after the note: what stood before it was made by somebody on purpose.
        SELECT count(*), array_agg(DISTINCT g.entity_id) FILTER (WHERE e.created_at >= n.created_at)
        INTO v_count, v_entities
        FROM gone g
        JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = g.note_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = g.entity_id;
        mentions := mentions + v_count;
        -- Whoever writes about one of them has it locked, and keeps it.
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities)
            ORDER BY e.entity_id FOR UPDATE SKIP LOCKED);
        v_kept := referenced_entities(v_tenant, v_project, v_entities);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.suppression = 0
          AND e.merged_into IS NULL AND e.erased_scopes IS NULL AND e.held_scopes IS NULL AND e.decoy_id IS NULL
          AND e.object_canonical_id IS NULL AND e.entity_id <> ALL (v_kept);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        entities := entities + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION queue_units(p_tenant text, p_project text, p_kind text, p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO embedding_queue AS q (
        tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT p_tenant, p_project, p_kind, u.id, m.model_id, v_now, v_now
    FROM unnest(p_ids) u(id) CROSS JOIN embedding_models m WHERE p_project IS NOT NULL
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO UPDATE
    SET queued_at = excluded.queued_at, available_at = excluded.available_at, attempts = 0, last_error = NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_units(p_model smallint, p_limit int, p_min double precision, p_patterns text[])
RETURNS TABLE (
    owner_kind text, owner_id uuid, queued_at timestamptz, attempts int, stored_hash bytea, embedded_at timestamptz,
    author text, occurred_at timestamptz, words text, redactions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_patterns text[];
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    v_patterns := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = v_tenant ORDER BY r.created_at, r.pattern_id);
    RETURN QUERY
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts, e.text_hash, e.embedded_at, a.words, u.occurred_at,
           r.words, coalesce(r.redactions, 0) + coalesce(a.redactions, 0)
    FROM (
        SELECT q.* FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model AND q.available_at <= v_now
        ORDER BY q.available_at, q.owner_id LIMIT p_limit
    ) q
    LEFT JOIN LATERAL (
        SELECT n.author, n.occurred_at, n.content AS said FROM memory_notes n
        WHERE q.owner_kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.project_id = v_project
          AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT NULL, NULL, concat_ws(' ', last_segment(s.canonical), p.canonical,
                   CASE WHEN f.object_entity_id IS NOT NULL THEN last_segment(o.canonical)
                        WHEN f.value_type = 'ref' THEN last_segment(f.object_value) ELSE f.object_value END)
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
        WHERE q.owner_kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.project_id = v_project
          AND f.suppression = 0 AND f.confidence > p_min
        UNION ALL
        SELECT NULL, NULL, c.content FROM memory_cards c
        WHERE q.owner_kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.project_id = v_project
          AND c.suppression = 0
        UNION ALL
        -- Of objects what stands on main.
        SELECT NULL, NULL, o.embed_text FROM graph_objects o
        WHERE q.owner_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main
          AND o.canonical_id = q.owner_id AND o.deleted_at IS NULL AND o.suppression = 0
    ) u ON true
    LEFT JOIN LATERAL redact_text(u.said, v_patterns) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, v_patterns) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION reconcile_embeddings(
    p_min double precision, OUT unqueued bigint, OUT removed bigint, OUT queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    -- Held from here on: who stores or removes vectors meanwhile adds their part when this is done.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT v_tenant, v_project, m.model_id, 'self', 0, 0, 0, v_now FROM embedding_models m ORDER BY m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = q.model_id)
           OR (q.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.deleted_at IS NULL
                     AND n.suppression = 0))
           OR (q.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.confidence > p_min
                     AND f.suppression = 0))
           OR (q.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c
                   WHERE c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.suppression = 0))
           OR (q.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = q.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL AND o.suppression = 0)));
    GET DIAGNOSTICS unqueued = ROW_COUNT;

    DELETE FROM embeddings e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = e.model_id)
           OR (e.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = e.owner_id AND n.deleted_at IS NULL))
           OR (e.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = e.owner_id AND f.confidence > p_min))
           OR (e.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = e.owner_id))
           OR (e.owner_kind = 'object' AND NOT EXISTS (
                   SELECT FROM graph_objects o
                   WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = e.owner_id
                     AND o.deleted_at IS NULL AND o.embed_text IS NOT NULL)));
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE embeddings e SET suppression = o.suppression
    FROM (
        SELECT 'note' AS kind, n.note_id AS id, n.suppression FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project
        UNION ALL
        SELECT 'fact', f.fact_id, f.suppression FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
        UNION ALL
        SELECT 'card', c.card_id, c.suppression FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        UNION ALL
        SELECT 'object', o.canonical_id, o.suppression FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main
    ) o
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.owner_kind = o.kind AND e.owner_id = o.id
      AND e.suppression <> o.suppression;

    INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT v_tenant, v_project, u.kind, u.id, m.model_id, v_now, v_now
    FROM (
        SELECT 'note' AS kind, n.note_id AS id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT 'fact', f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_min AND f.suppression = 0
        UNION ALL
        SELECT 'card', c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0
        UNION ALL
        SELECT 'object', o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.deleted_at IS NULL AND o.suppression = 0
          AND o.embed_text IS NOT NULL
    ) u
    CROSS JOIN embedding_models m
    WHERE NOT EXISTS (
        SELECT FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = m.model_id AND e.view = 'self' AND e.owner_kind = u.kind
          AND e.owner_id = u.id)
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO NOTHING;
    GET DIAGNOSTICS queued = ROW_COUNT;

    DELETE FROM embedding_counts c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project
      AND NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = c.model_id);
    UPDATE embedding_counts c
    SET vectors = coalesce(n.vectors, 0), notes = coalesce(n.notes, 0), facts = coalesce(n.facts, 0)
    FROM embedding_models m
    LEFT JOIN (
        SELECT e.model_id, count(*) AS vectors, count(*) FILTER (WHERE e.owner_kind = 'note') AS notes,
               count(*) FILTER (WHERE e.owner_kind = 'fact') AS facts
        FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.view = 'self' GROUP BY e.model_id
    ) n ON n.model_id = m.model_id
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = m.model_id AND c.view = 'self';
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION refresh_lexicon(p_kind text, p_frequent bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_branches uuid[] := main_branches(v_tenant, v_project);
BEGIN
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, p_kind, count(*), coalesce(sum(d.length), 0), 0, clock_timestamp()
    FROM (
        SELECT n.terms_length AS length FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT f.terms_length FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT o.terms_length FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) d
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET documents = excluded.documents, total_length = excluded.total_length, added = 0,
        counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l
    WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = p_kind;
    INSERT INTO lexical_frequencies (tenant_id, project_id, kind, term, documents)
    SELECT v_tenant, v_project, p_kind, t.term, count(*)
    FROM (
        SELECT unnest(tsvector_to_array(n.terms)) AS term FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(f.terms)) FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(o.terms)) FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) t
    GROUP BY t.term HAVING count(*) >= p_frequent;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION reindex_terms(p_kind text, p_after uuid, p_limit int)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[];
BEGIN
    IF p_kind = 'note' THEN
        v_ids := ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.note_id > p_after
            ORDER BY n.note_id LIMIT p_limit);
        UPDATE memory_notes n
        SET terms = note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content),
            telling = count_telling(v_tenant, v_project, n.content)
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids);
    ELSIF p_kind = 'object' THEN
        v_ids := ARRAY(
            SELECT DISTINCT o.canonical_id FROM branches b
            JOIN graph_objects o ON o.tenant_id = v_tenant AND o.branch_id = b.branch_id AND o.canonical_id > p_after
            WHERE b.tenant_id = v_tenant AND b.project_id = v_project
            ORDER BY o.canonical_id LIMIT p_limit);
        UPDATE graph_objects o
        SET terms = object_terms(v_tenant, v_project, o.title, o.key, o.labels, object_words(o.properties))
        FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND o.tenant_id = v_tenant
          AND o.branch_id = b.branch_id AND o.canonical_id = ANY (v_ids)
          AND coalesce(
              (SELECT s.fts_enabled FROM object_type_schemas s
               WHERE s.tenant_id = v_tenant AND s.type = o.type AND s.status = 'active'),
              (SELECT s.fts_enabled FROM global_object_type_schemas s
               WHERE s.type = o.type AND s.status = 'active'), true);
    ELSE
        v_ids := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id > p_after
            ORDER BY f.fact_id LIMIT p_limit);
        UPDATE graph_facts f
        SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                               coalesce(o.canonical, f.object_value))
        FROM graph_facts x
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = x.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = x.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = x.object_entity_id
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND x.tenant_id = v_tenant AND x.fact_id = f.fact_id;
    END IF;
    RETURN v_ids[cardinality(v_ids)];
END
$$;
""",
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
    v_documents uuid[];
    v_objects uuid[];
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
    -- Which notes, facts, documents and objects name it was found out for tombstones alone.
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
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
        WITH gone AS (
            DELETE FROM object_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.canonical_id
        ) SELECT array_agg(g.canonical_id) INTO v_objects FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM settle_documents(v_tenant, v_documents);
    PERFORM settle_objects(v_tenant, v_objects);
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
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_reconciliations(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT p.tenant_id, i.job_id, p.project_id, 'embed_reconcile', '{}', 'embed_reconcile', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (
        SELECT md5('embed_reconcile ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id) i
    WHERE NOT EXISTS (
            SELECT FROM jobs d
            WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
              AND (d.status IN ('pending', 'leased') OR d.finished_at >= p_before))
      AND (EXISTS (SELECT FROM memory_notes n WHERE n.tenant_id = p.tenant_id AND n.project_id = p.project_id)
           OR EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = p.tenant_id AND f.project_id = p.project_id)
           OR EXISTS (SELECT FROM branches b
                      JOIN graph_objects o ON o.tenant_id = p.tenant_id AND o.branch_id = b.branch_id
                      WHERE b.tenant_id = p.tenant_id AND b.project_id = p.project_id)
           OR EXISTS (SELECT FROM redaction_counts r
                      WHERE r.tenant_id = p.tenant_id AND r.project_id = p.project_id))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
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
    PERFORM settle_documents(p_tenant, ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
    PERFORM settle_objects(p_tenant, ARRAY(
        SELECT m.canonical_id FROM object_entity_mentions m WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
        UNION
        SELECT e.object_canonical_id FROM graph_entities e
        WHERE e.tenant_id = p_tenant AND (e.entity_id = p_entity OR e.merged_into = p_entity)
          AND e.object_canonical_id IS NOT NULL));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'), v_now, p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held)
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    ), told AS (
        INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
        SELECT v_tenant, v_project, t.owner_kind, 0, 0, count(*), '-infinity' FROM stored t
        WHERE v_leads AND t.is_new AND t.owner_kind IN ('note', 'fact', 'object') GROUP BY t.owner_kind
        ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added
        RETURNING s.kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact')
    INTO v_added, v_notes, v_facts FROM stored t WHERE t.is_new;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION weigh_terms(
    p_tenant text, p_project text, p_kind text, p_query text, p_terms int,
    OUT terms text[], OUT documents bigint[], OUT total bigint, OUT average double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_rare text[];
    v_counts bigint[];
    v_length bigint;
BEGIN
    SELECT s.documents, s.total_length::double precision / nullif(s.documents, 0) INTO total, average
    FROM lexical_statistics s
    WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind AND s.documents > 0;
    IF NOT FOUND THEN
        IF p_kind = 'note' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT n.terms_length FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL LIMIT 20000) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT o.terms_length FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = ANY (main_branches(p_tenant, p_project))
                  AND o.deleted_at IS NULL LIMIT 20000) d;
        ELSE
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT f.terms_length FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL LIMIT 20000) d;
        END IF;
        average := v_length::double precision / nullif(total, 0);
    END IF;
    average := greatest(coalesce(average, 1), 1);
    terms := ARRAY(
        SELECT t.lexeme FROM unnest(to_tsvector(v_language, p_query)) t
        ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    IF p_kind = 'object' AND EXISTS (
        SELECT FROM branches b JOIN graph_objects o ON o.tenant_id = p_tenant AND o.branch_id = b.branch_id
        WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main') THEN
        -- What belongs to no project is found by its words as they are written.
        terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector('simple', p_query)) t
            WHERE t.lexeme <> ALL (terms) AND to_tsvector(v_language, t.lexeme) <> ''::tsvector
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms) || terms;
    END IF;
    v_rare := ARRAY(
        SELECT t.term FROM unnest(terms) t(term)
        WHERE NOT EXISTS (
            SELECT FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term)
        ORDER BY t.term);
    v_counts := count_documents(p_kind, v_rare, 2000);
    documents := ARRAY(
        SELECT coalesce(l.documents, v_counts[array_position(v_rare, t.term)], 0)
        FROM unnest(terms) WITH ORDINALITY t(term, place)
        LEFT JOIN lexical_frequencies l
            ON l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term
        ORDER BY t.place);
    total := greatest(total, (SELECT max(d) FROM unnest(documents) d));
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION count_documents(p_kind text, p_terms text[], p_most int)
RETURNS bigint[]
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_counts bigint[] := '{}';
    v_keys text[];
    v_count bigint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RETURN v_counts;
    END IF;
    FOR i IN 1 .. cardinality(p_terms) LOOP
        v_keys := lexical_keys(v_tenant, v_project, p_terms[i:i]);
        IF p_kind = 'note' THEN
            SELECT count(*) INTO v_count FROM (
                SELECT FROM memory_notes n
                WHERE lexical_keys(n.tenant_id, n.project_id, tsvector_to_array(n.terms)) && v_keys
                  AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
                  AND n.deleted_at IS NULL AND n.suppression = 0
                  AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
                  AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
                LIMIT p_most) d;
        ELSE
            SELECT count(*) INTO v_count FROM (
                SELECT FROM graph_facts f
                WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
                  AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
                  AND f.retracted_at IS NULL AND f.suppression = 0
                  AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
                  AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
                LIMIT p_most) d;
        END IF;
        v_counts := v_counts || v_count;
    END LOOP;
    RETURN v_counts;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION diagnose_project(p_least double precision, p_sample int, p_revivable int)
RETURNS TABLE (
    settings jsonb, depth bigint, oldest_seconds double precision, ended bigint, dead bigint, failed bigint,
    revivable bigint, long_leases bigint, stale_leases bigint, notes bigint, deleted bigint, expired bigint,
    unindexed bigint, sampled bigint, stale bigint, embedding boolean, units bigint, vectors bigint, queued bigint,
    calls bigint, succeeded bigint, recoveries bigint, extractions bigint, graph_facts boolean, lost_links bigint,
    input_tokens bigint, output_tokens bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_since date;
    v_model smallint;
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'diagnose_project needs tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;
    SELECT p.settings INTO settings FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project;

    SELECT count(*), greatest(0, coalesce(extract(epoch FROM v_now - min(j.available_at)), 0))
    INTO depth, oldest_seconds FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'pending';
    SELECT count(*) FILTER (WHERE coalesce(j.started_at, j.created_at) < v_now - interval '10 minutes'),
           count(*) FILTER (WHERE j.lease_expires_at < v_now)
    INTO long_leases, stale_leases FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.project_id = v_project AND j.status = 'leased';
    SELECT count(*) FILTER (WHERE j.status = 'dead'), count(*) FILTER (WHERE j.status = 'failed'),
           count(*) FILTER (WHERE j.kind = 'graph_link')
    INTO dead, failed, lost_links FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('dead', 'failed') AND j.finished_at >= v_now - interval '24 hours'
      AND j.project_id = v_project;
    -- The first condition is the index's; what was cancelled did not end by itself.
    SELECT dead + failed + count(*) INTO ended FROM jobs j
    WHERE j.tenant_id = v_tenant AND j.status IN ('completed', 'cancelled') AND j.status = 'completed'
      AND j.finished_at >= v_now - interval '24 hours' AND j.project_id = v_project;
    SELECT count(*) INTO revivable FROM find_revivable(v_tenant, v_project, p_revivable);

    SELECT count(*), count(*) FILTER (WHERE n.deleted_at IS NOT NULL),
           count(*) FILTER (WHERE n.deleted_at < v_now - interval '30 days'),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.terms_length = 0),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.extraction_status = 'completed')
    INTO notes, deleted, expired, unindexed, extractions FROM memory_notes n
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0;
    SELECT count(*), count(*) FILTER (WHERE s.terms <> note_terms(
               v_tenant, v_project, s.author, s.occurred_at, s.tags, s.content))
    INTO sampled, stale FROM (
        SELECT n.terms, n.author, n.occurred_at, n.tags, n.content FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.suppression = 0 AND n.deleted_at IS NULL
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_sample) s;

    SELECT m.model_id INTO v_model FROM embedding_models m WHERE m.active;
    embedding := v_model IS NOT NULL;
    IF embedding THEN
        units := notes - deleted
            + (SELECT count(*) FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_least
                 AND f.suppression = 0)
            + (SELECT count(*) FROM memory_cards c
               WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0);
        SELECT count(*) INTO vectors FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = v_model AND e.view = 'self' AND e.project_id = v_project
          AND e.suppression = 0;
        SELECT count(*) INTO queued FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = v_model;
    ELSE
        units := 0;
        vectors := 0;
        queued := 0;
    END IF;
    graph_facts := EXISTS (
        SELECT FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = 'pipeline');

    SELECT count(*), count(*) FILTER (WHERE c.succeeded) INTO calls, succeeded FROM (
        SELECT c.succeeded FROM llm_calls c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
        ORDER BY c.created_at DESC LIMIT 100) c;
    SELECT count(*) INTO recoveries FROM memory_history h
    WHERE h.tenant_id = v_tenant AND h.history_id >= first_id(v_now - interval '7 days') AND h.project_id = v_project
      AND h.event = 'recovered' AND h.created_at >= v_now - interval '7 days' AND h.suppression = 0;
    v_since := CASE coalesce(settings #>> '{pipeline,extraction_budget_period}', 'month')
        WHEN 'day' THEN (v_now AT TIME ZONE 'UTC')::date
        WHEN 'month' THEN date_trunc('month', v_now AT TIME ZONE 'UTC')::date
        ELSE '-infinity'::date END;
    SELECT coalesce(sum(u.input_tokens), 0), coalesce(sum(u.output_tokens), 0) INTO input_tokens, output_tokens
    FROM llm_usage u WHERE u.tenant_id = v_tenant AND u.project_id = v_project AND u.day >= v_since;
    RETURN NEXT;
END
$$;
""",
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
    v_cards uuid[];
    v_sourced uuid[];
    v_documents uuid[];
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
    -- Documents that name it, or of which a part goes. What a hold keeps of others stays as it is.
    v_documents := ARRAY(
        SELECT d.document_id FROM documents d
        WHERE d.tenant_id = v_tenant AND d.project_id = v_project
          AND (EXISTS (SELECT FROM document_entity_mentions m
                       WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                         AND m.entity_id = v_tombstone.entity_id)
               OR EXISTS (SELECT FROM document_notes x
                          WHERE x.tenant_id = v_tenant AND x.document_id = d.document_id
                            AND x.note_id = ANY (v_notes)))
          AND (v_whole OR d.scope = ANY (v_tombstone.scopes))
          AND NOT EXISTS (SELECT FROM document_entity_mentions m
                          JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = m.entity_id
                          WHERE m.tenant_id = v_tenant AND m.document_id = d.document_id
                            AND d.scope = ANY (e.held_scopes)));
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
      AND (names_any(encode(k.body, 'escape'), v_ids || v_documents)
           OR (v_tombstone.named AND right(k.path, length(v_project) + 1) = ' ' || v_project
               AND says(convert_from(k.body, 'UTF8')::jsonb, v_pattern)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('idempotency_keys', v_count);
    -- A note that stays although its job goes waits no longer.
    UPDATE memory_notes n SET extraction_status = 'none'
    WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.extraction_status = 'pending'
      AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = v_tenant AND j.kind = 'extract' AND j.status IN ('pending', 'leased')
          AND j.dedupe_key = n.note_id::text
          AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
               OR (v_tombstone.named AND normalize(lower(j.last_error)) ~ v_pattern)));
    UPDATE jobs j
    SET payload = '{}', last_error = NULL, result = NULL,
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
        -- What a worker holds of it in its hands must not be written after this.
        status = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                      THEN 'cancelled' ELSE j.status END,
        lease_owner = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_owner END,
        lease_expires_at = CASE WHEN j.kind NOT IN ('extract', 'graph_link') THEN j.lease_expires_at END,
        finished_at = CASE WHEN j.status = 'pending' OR (j.status = 'leased' AND j.kind IN ('extract', 'graph_link'))
                           THEN v_now ELSE j.finished_at END
    WHERE j.tenant_id = v_tenant AND j.job_id <> p_job
      AND (names_any(concat_ws(' ', j.payload, j.result, j.last_error), v_ids)
           OR (v_tombstone.named AND j.project_id = v_project
               AND (says(j.payload, v_pattern) OR says(j.result, v_pattern)
                    OR normalize(lower(j.last_error)) ~ v_pattern))
           -- What is still to be done is not stopped by a mere value.
           OR (j.status NOT IN ('pending', 'leased') AND j.project_id = v_project
               AND (says(j.payload, v_values) OR says(j.result, v_values)
                    OR normalize(lower(j.last_error)) ~ v_values)));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('jobs', v_count);
    IF v_tombstone.named AND v_whole THEN
        UPDATE fact_retractions r SET reason = NULL
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern
          AND NOT is_held(v_tenant, r.fact_id);
        UPDATE fact_conflicts c SET resolution_note = NULL
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
          AND normalize(lower(c.resolution_note)) ~ v_pattern AND NOT is_held(v_tenant, c.fact_a);
        WITH changed AS (
            UPDATE graph_facts f SET source = NULL, updated_at = v_now
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND normalize(lower(f.source)) ~ v_pattern
              AND NOT is_held(v_tenant, f.fact_id)
            RETURNING f.fact_id
        ) SELECT array_agg(c.fact_id) INTO v_sourced FROM changed c;
        UPDATE tombstones t SET reason = ''
        WHERE t.tenant_id = v_tenant AND t.project_id = v_project AND normalize(lower(t.reason)) ~ v_pattern;
        UPDATE tombstone_revocations r SET reason = ''
        WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND normalize(lower(r.reason)) ~ v_pattern;
        DELETE FROM sources s
        WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND normalize(lower(s.source)) ~ v_pattern;
        GET DIAGNOSTICS v_count = ROW_COUNT;
        v_counts := v_counts || jsonb_build_object('sources', v_count);
    END IF;

    -- Of documents their traces alone stay: how many chunks they had, and when.
    UPDATE documents d
    SET title = NULL, source_url = NULL, error = NULL, raw_content = NULL, author = NULL, tags = '{}',
        content_hash = NULL, content_type = NULL,
        status = CASE WHEN d.status = 'done' THEN 'done' ELSE 'failed' END, updated_at = v_now
    WHERE d.tenant_id = v_tenant AND d.document_id = ANY (v_documents);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('documents', v_count);
    DELETE FROM memory_reviews r
    WHERE r.tenant_id = v_tenant
      AND (r.note_id = ANY (v_notes) OR r.target_note_id = ANY (v_notes)
           OR (v_tombstone.named AND r.project_id = v_project AND r.suppression <> 2
               AND (v_whole OR r.scope = ANY (v_tombstone.scopes))
               AND normalize(lower(concat_ws(' ', r.content, r.reason, r.decision_reason))) ~ v_pattern));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_reviews', v_count);
    -- What was once proposed about notes that stay.
    UPDATE memory_history h SET proposal = NULL
    WHERE h.tenant_id = v_tenant AND h.proposal IS NOT NULL AND h.note_id <> ALL (v_notes)
      AND (names_any(h.proposal::text, v_ids)
           OR (h.project_id = v_project AND h.suppression <> 2
               AND ((v_tombstone.named AND says(h.proposal, v_pattern)) OR says(h.proposal, v_values))));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('proposals', v_count);

    DELETE FROM recall_traces r
    WHERE r.tenant_id = v_tenant AND r.project_id = v_project
      AND (names_any(r.results::text, v_ids) OR names_any(r.request::text, v_ids)
           OR (v_tombstone.named AND says(r.request, v_pattern)) OR says(r.request, v_values));
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('recall_traces', v_count);
    -- Terms that were counted are counted anew, without it.
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = v_tenant AND l.project_id = v_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('lexical_frequencies', v_count);
    UPDATE lexical_statistics s SET counted_at = '-infinity'
    WHERE s.tenant_id = v_tenant AND s.project_id = v_project;

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
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = v_tombstone.entity_id
          AND (v_whole OR c.scope = ANY (v_tombstone.scopes))
        -- And those of others, which told what goes or by whom it was said.
        UNION SELECT unnest(cards_telling(v_tenant, v_project, v_facts || v_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (v_facts || v_notes || v_cards);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card') AND x.owner_id = ANY (v_facts || v_notes || v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
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
    -- Those of other scopes stay, and forget where they come from.
    UPDATE memory_notes n SET derived_from = NULL
    WHERE n.tenant_id = v_tenant AND n.derived_from = ANY (v_notes) AND n.note_id <> ALL (v_notes);
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
        PERFORM settle_documents(v_tenant, v_documents);
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
        DELETE FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id AND m.document_id = ANY (v_documents);
        PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
        PERFORM settle_documents(v_tenant, v_documents);
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
$$;
""",
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
    v_documents uuid[];
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
    v_documents := ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = v_tenant AND m.entity_id = v_entity.entity_id
        UNION
        SELECT x.document_id FROM document_notes x WHERE x.tenant_id = v_tenant AND x.note_id = ANY (v_notes));
    -- Answers that were kept for those who ask again must not show it either.
    DELETE FROM idempotency_keys k
    WHERE k.tenant_id = v_tenant AND NOT k.sealed AND k.path ~ '^/v1/(facts|entities|notes|conflicts|documents)'
      AND names_any(encode(k.body, 'escape'), v_notes || v_facts || v_documents || v_entity.entity_id);
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
$$;
""",
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
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
END
$$;
""",
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
    v_renamed uuid[];
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
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
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

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
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
$$;
""",
    """
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
-- Of the lookups: what is written out below is planned each time.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Named here so that what the function does to it ends with it.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_holds text := '';
    v_enough text := '';
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_found int;
BEGIN
    -- How many of this kind there are; cards are few.
    IF p_kind <> 'card' THEN
        SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
        INTO v_vectors FROM embedding_counts c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    END IF;
    IF v_vectors > 25000 THEN
        -- Of the index over the part of the table that has this tenant's vectors.
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
        FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
        WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
          AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                            WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $6, $7) OFFSET 0) h';
        v_enough := ' AND h.sure >= $9 AND h.sure > 0 AND h.sure * h.source_trust >= $10';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', least(greatest(90, 3 * p_limit / 2), 400)::text, true),
                set_config('hnsw.max_scan_tuples', '40000', true);
        PERFORM set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        RETURN QUERY EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
            '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
            'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id',
            p_dimensions, v_holds, v_mine, v_enough)
        USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            RETURN;
        END IF;
        -- Nothing of what the caller may read was met: then it is little, and is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION purge_links(p_before timestamptz, p_limit int, OUT mentions bigint, OUT entities bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text;
    v_notes uuid[];
    v_entities uuid[];
    v_kept uuid[];
    v_count bigint;
BEGIN
    mentions := 0;
    entities := 0;
    FOR v_project IN SELECT * FROM swept_projects(v_tenant, nullif(current_setting('app.project_id', true), '')) LOOP
        EXIT WHEN mentions >= p_limit;
        v_notes := due_notes(v_tenant, v_project, 'links', p_before, p_limit);
        CONTINUE WHEN cardinality(v_notes) = 0;
        WITH pick AS (
            SELECT m.note_id, m.entity_id FROM note_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.note_id = ANY (v_notes)
            ORDER BY m.note_id, m.entity_id LIMIT p_limit - mentions
        ), gone AS (
            DELETE FROM note_entity_mentions m USING pick
            WHERE m.tenant_id = v_tenant AND m.note_id = pick.note_id AND m.entity_id = pick.entity_id
            RETURNING m.note_id, m.entity_id
        )
        -- Only those that came with or after the note: what stood before it was made by somebody on purpose.
        SELECT count(*), array_agg(DISTINCT g.entity_id) FILTER (WHERE e.created_at >= n.created_at)
        INTO v_count, v_entities
        FROM gone g
        JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = g.note_id
        JOIN graph_entities e ON e.tenant_id = v_tenant AND e.entity_id = g.entity_id;
        mentions := mentions + v_count;
        -- Whoever writes about one of them has it locked, and keeps it.
        v_entities := ARRAY(
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities)
            ORDER BY e.entity_id FOR UPDATE SKIP LOCKED);
        v_kept := referenced_entities(v_tenant, v_project, v_entities);
        DELETE FROM graph_entities e
        WHERE e.tenant_id = v_tenant AND e.entity_id = ANY (v_entities) AND e.suppression = 0
          AND e.merged_into IS NULL AND e.erased_scopes IS NULL AND e.held_scopes IS NULL AND e.decoy_id IS NULL
          AND e.entity_id <> ALL (v_kept);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        entities := entities + v_count;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION queue_units(p_tenant text, p_project text, p_kind text, p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO embedding_queue AS q (
        tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT p_tenant, p_project, p_kind, u.id, m.model_id, v_now, v_now
    FROM unnest(p_ids) u(id) CROSS JOIN embedding_models m
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO UPDATE
    SET queued_at = excluded.queued_at, available_at = excluded.available_at, attempts = 0, last_error = NULL;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_units(p_model smallint, p_limit int, p_min double precision, p_patterns text[])
RETURNS TABLE (
    owner_kind text, owner_id uuid, queued_at timestamptz, attempts int, stored_hash bytea, embedded_at timestamptz,
    author text, occurred_at timestamptz, words text, redactions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_patterns text[];
BEGIN
    v_patterns := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = v_tenant ORDER BY r.created_at, r.pattern_id);
    RETURN QUERY
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts, e.text_hash, e.embedded_at, a.words, u.occurred_at,
           r.words, coalesce(r.redactions, 0) + coalesce(a.redactions, 0)
    FROM (
        SELECT q.* FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model AND q.available_at <= v_now
        ORDER BY q.available_at, q.owner_id LIMIT p_limit
    ) q
    LEFT JOIN LATERAL (
        SELECT n.author, n.occurred_at, n.content AS said FROM memory_notes n
        WHERE q.owner_kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.project_id = v_project
          AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT NULL, NULL, concat_ws(' ', last_segment(s.canonical), p.canonical,
                   CASE WHEN f.object_entity_id IS NOT NULL THEN last_segment(o.canonical)
                        WHEN f.value_type = 'ref' THEN last_segment(f.object_value) ELSE f.object_value END)
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
        WHERE q.owner_kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.project_id = v_project
          AND f.suppression = 0 AND f.confidence > p_min
        UNION ALL
        SELECT NULL, NULL, c.content FROM memory_cards c
        WHERE q.owner_kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.project_id = v_project
          AND c.suppression = 0
    ) u ON true
    LEFT JOIN LATERAL redact_text(u.said, v_patterns) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, v_patterns) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION reconcile_embeddings(
    p_min double precision, OUT unqueued bigint, OUT removed bigint, OUT queued bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
BEGIN
    -- Held from here on: who stores or removes vectors meanwhile adds their part when this is done.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    SELECT v_tenant, v_project, m.model_id, 'self', 0, 0, 0, v_now FROM embedding_models m ORDER BY m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = q.model_id)
           OR (q.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.deleted_at IS NULL
                     AND n.suppression = 0))
           OR (q.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.confidence > p_min
                     AND f.suppression = 0))
           OR (q.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c
                   WHERE c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.suppression = 0)));
    GET DIAGNOSTICS unqueued = ROW_COUNT;

    DELETE FROM embeddings e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project
      AND (NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = e.model_id)
           OR (e.owner_kind = 'note' AND NOT EXISTS (
                   SELECT FROM memory_notes n
                   WHERE n.tenant_id = v_tenant AND n.note_id = e.owner_id AND n.deleted_at IS NULL))
           OR (e.owner_kind = 'fact' AND NOT EXISTS (
                   SELECT FROM graph_facts f
                   WHERE f.tenant_id = v_tenant AND f.fact_id = e.owner_id AND f.confidence > p_min))
           OR (e.owner_kind = 'card' AND NOT EXISTS (
                   SELECT FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = e.owner_id)));
    GET DIAGNOSTICS removed = ROW_COUNT;
    UPDATE embeddings e SET suppression = o.suppression
    FROM (
        SELECT 'note' AS kind, n.note_id AS id, n.suppression FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project
        UNION ALL
        SELECT 'fact', f.fact_id, f.suppression FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
        UNION ALL
        SELECT 'card', c.card_id, c.suppression FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project
    ) o
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.owner_kind = o.kind AND e.owner_id = o.id
      AND e.suppression <> o.suppression;

    INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
    SELECT v_tenant, v_project, u.kind, u.id, m.model_id, v_now, v_now
    FROM (
        SELECT 'note' AS kind, n.note_id AS id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT 'fact', f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.confidence > p_min AND f.suppression = 0
        UNION ALL
        SELECT 'card', c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.suppression = 0
    ) u
    CROSS JOIN embedding_models m
    WHERE NOT EXISTS (
        SELECT FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.model_id = m.model_id AND e.view = 'self' AND e.owner_kind = u.kind
          AND e.owner_id = u.id)
    ORDER BY u.id, m.model_id
    ON CONFLICT (tenant_id, project_id, model_id, owner_kind, owner_id) DO NOTHING;
    GET DIAGNOSTICS queued = ROW_COUNT;

    DELETE FROM embedding_counts c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project
      AND NOT EXISTS (SELECT FROM embedding_models m WHERE m.model_id = c.model_id);
    UPDATE embedding_counts c
    SET vectors = coalesce(n.vectors, 0), notes = coalesce(n.notes, 0), facts = coalesce(n.facts, 0)
    FROM embedding_models m
    LEFT JOIN (
        SELECT e.model_id, count(*) AS vectors, count(*) FILTER (WHERE e.owner_kind = 'note') AS notes,
               count(*) FILTER (WHERE e.owner_kind = 'fact') AS facts
        FROM embeddings e
        WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.view = 'self' GROUP BY e.model_id
    ) n ON n.model_id = m.model_id
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = m.model_id AND c.view = 'self';
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION refresh_lexicon(p_kind text, p_frequent bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    SELECT v_tenant, v_project, p_kind, count(*), coalesce(sum(d.length), 0), 0, clock_timestamp()
    FROM (
        SELECT n.terms_length AS length FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT f.terms_length FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
    ) d
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET documents = excluded.documents, total_length = excluded.total_length, added = 0,
        counted_at = excluded.counted_at;
    DELETE FROM lexical_frequencies l
    WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = p_kind;
    INSERT INTO lexical_frequencies (tenant_id, project_id, kind, term, documents)
    SELECT v_tenant, v_project, p_kind, t.term, count(*)
    FROM (
        SELECT unnest(tsvector_to_array(n.terms)) AS term FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT unnest(tsvector_to_array(f.terms)) FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
    ) t
    GROUP BY t.term HAVING count(*) >= p_frequent;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION reindex_terms(p_kind text, p_after uuid, p_limit int)
RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_ids uuid[];
BEGIN
    IF p_kind = 'note' THEN
        v_ids := ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = v_tenant AND n.project_id = v_project AND n.note_id > p_after
            ORDER BY n.note_id LIMIT p_limit);
        UPDATE memory_notes n
        SET terms = note_terms(v_tenant, v_project, n.author, n.occurred_at, n.tags, n.content),
            telling = count_telling(v_tenant, v_project, n.content)
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids);
    ELSE
        v_ids := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.fact_id > p_after
            ORDER BY f.fact_id LIMIT p_limit);
        UPDATE graph_facts f
        SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                               coalesce(o.canonical, f.object_value))
        FROM graph_facts x
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = x.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = x.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = x.object_entity_id
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND x.tenant_id = v_tenant AND x.fact_id = f.fact_id;
    END IF;
    RETURN v_ids[cardinality(v_ids)];
END
$$;
""",
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
    v_documents uuid[];
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
    -- Which notes, facts and documents name it was found out for tombstones alone.
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
        WITH gone AS (
            DELETE FROM document_entity_mentions m
            WHERE m.tenant_id = v_tenant AND m.entity_id = v_tombstone.entity_id
            RETURNING m.document_id
        ) SELECT array_agg(g.document_id) INTO v_documents FROM gone g;
    END IF;
    PERFORM settle_entity(v_tenant, v_project, v_agent, v_tombstone.entity_id);
    PERFORM settle_facts(v_tenant, v_project, v_agent, v_facts);
    PERFORM settle_notes(v_tenant, v_agent, v_notes);
    PERFORM settle_documents(v_tenant, v_documents);
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
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_reconciliations(p_before timestamptz)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                           created_at)
    SELECT p.tenant_id, i.job_id, p.project_id, 'embed_reconcile', '{}', 'embed_reconcile', 'schedule', v_now, v_now
    FROM projects p
    CROSS JOIN LATERAL (
        SELECT md5('embed_reconcile ' || p.tenant_id || '/' || p.project_id)::uuid AS job_id) i
    WHERE NOT EXISTS (
            SELECT FROM jobs d
            WHERE d.tenant_id = p.tenant_id AND d.job_id = i.job_id
              AND (d.status IN ('pending', 'leased') OR d.finished_at >= p_before))
      AND (EXISTS (SELECT FROM memory_notes n WHERE n.tenant_id = p.tenant_id AND n.project_id = p.project_id)
           OR EXISTS (SELECT FROM graph_facts f WHERE f.tenant_id = p.tenant_id AND f.project_id = p.project_id)
           OR EXISTS (SELECT FROM redaction_counts r
                      WHERE r.tenant_id = p.tenant_id AND r.project_id = p.project_id))
    ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
    SET status = 'pending', attempts = 0, available_at = excluded.available_at, created_at = excluded.created_at,
        started_at = NULL, finished_at = NULL, last_error = NULL
    WHERE j.status NOT IN ('pending', 'leased')
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
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
    PERFORM settle_documents(p_tenant, ARRAY(
        SELECT m.document_id FROM document_entity_mentions m
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'), v_now, p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held)
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    ), told AS (
        INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
        SELECT v_tenant, v_project, t.owner_kind, 0, 0, count(*), '-infinity' FROM stored t
        WHERE v_leads AND t.is_new AND t.owner_kind IN ('note', 'fact') GROUP BY t.owner_kind
        ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added
        RETURNING s.kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact')
    INTO v_added, v_notes, v_facts FROM stored t WHERE t.is_new;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION weigh_terms(
    p_tenant text, p_project text, p_kind text, p_query text, p_terms int,
    OUT terms text[], OUT documents bigint[], OUT total bigint, OUT average double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_rare text[];
    v_counts bigint[];
    v_length bigint;
BEGIN
    SELECT s.documents, s.total_length::double precision / nullif(s.documents, 0) INTO total, average
    FROM lexical_statistics s
    WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind AND s.documents > 0;
    IF NOT FOUND THEN
        IF p_kind = 'note' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT n.terms_length FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL LIMIT 20000) d;
        ELSE
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT f.terms_length FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL LIMIT 20000) d;
        END IF;
        average := v_length::double precision / nullif(total, 0);
    END IF;
    average := greatest(coalesce(average, 1), 1);
    terms := ARRAY(
        SELECT t.lexeme FROM unnest(to_tsvector(project_language(p_tenant, p_project), p_query)) t
        ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    v_rare := ARRAY(
        SELECT t.term FROM unnest(terms) t(term)
        WHERE NOT EXISTS (
            SELECT FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term)
        ORDER BY t.term);
    v_counts := count_documents(p_kind, v_rare, 2000);
    documents := ARRAY(
        SELECT coalesce(l.documents, v_counts[array_position(v_rare, t.term)], 0)
        FROM unnest(terms) WITH ORDINALITY t(term, place)
        LEFT JOIN lexical_frequencies l
            ON l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term
        ORDER BY t.place);
    total := greatest(total, (SELECT max(d) FROM unnest(documents) d));
END
$$;
""",
)

SIGNATURES: tuple[str, ...] = (
    "backfill_objects(json)",
    "backfill_relationships(json)",
    "bind_entity(uuid, uuid, boolean, text)",
    "change_object(text, text, json, timestamptz)",
    "change_relationship(text, text, json, timestamptz)",
    "check_types(text, uuid[], text, text[])",
    "contain_objects(uuid, uuid, text, text, text, text, text[], jsonb, uuid, int)",
    "doomed_objects(text, uuid, text[])",
    "end_summary(jsonb, text)",
    (
        "expand_objects(text, text, uuid[], jsonb, boolean, int, timestamptz, int, int, int, text, boolean, "
        "boolean, int, jsonb)"
    ),
    "filter_clause(jsonb)",
    "find_object_hold(text, uuid[], uuid[])",
    "find_roots(text, uuid[], uuid[], timestamptz)",
    "fragment_clause(jsonb)",
    "hold_types(text, text[], boolean)",
    "link_objects(text, text, json, timestamptz)",
    "list_paths(uuid[], uuid[], uuid[], int[], int, boolean, int)",
    "look_at_objects(text, uuid[], int, text, int, bigint)",
    "main_branch(text)",
    "main_branches(text, text)",
    "mark_multiplicity(text)",
    "match_objects(text[], double precision[], text[], double precision, int, int, uuid[])",
    "multiplicity_of(text, text)",
    "object_levels(text, uuid[])",
    "object_terms(text, text, text, text, text[], text)",
    "object_words(jsonb)",
    "pick_json(jsonb, jsonb)",
    "point_at(jsonb, text[])",
    "reach_of(text, text)",
    "relink_object(text, uuid, timestamptz)",
    "restore_objects(text, uuid[])",
    "retire_object(text, uuid, uuid, text, timestamptz)",
    "retire_relationship(text, uuid, uuid, text, timestamptz)",
    "settle_objects(text, uuid[])",
    "store_objects(text, text, json, timestamptz)",
    "traverse_objects(text, text, uuid[], jsonb, int, int, int, int, uuid, boolean, int)",
    "unlink_object(text, uuid, timestamptz)",
    "used_elsewhere(text, text)",
    (
        "walk_objects(text, uuid[], uuid[], uuid[], jsonb, boolean, boolean, int, timestamptz, int, int, int, "
        "boolean, jsonb)"
    ),
)
# Functions that answer otherwise than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = (
    (
        "issue_tombstone(uuid, json, text[], text, boolean, boolean, timestamptz, boolean, text, uuid)",
        "issue_tombstone(uuid, json, text[], text, boolean, boolean, timestamptz, boolean, text, uuid)",
    ),
)

UNDO = """
DROP TABLE object_entity_mentions, graph_relationship_versions, graph_relationships, graph_object_versions,
    graph_objects, global_relationship_type_schemas, global_object_type_schemas, relationship_type_schemas,
    object_type_schemas, branches;
ALTER TABLE audit_log
    DROP CONSTRAINT audit_log_event_type_check,
    -- What was written of objects stays in the chain.
    ADD CONSTRAINT audit_log_event_type_check
        CHECK (event_type IN ('fact_write', 'fact_read', 'key_issue', 'key_revoke', 'key_rotation',
            'quarantine_admit', 'quarantine_release', 'quota_breach', 'admin_action', 'tombstone_issued',
            'tombstone_revoked', 'rtbf_legal_hold_issued', 'erasure_completed')) NOT VALID;
DROP INDEX graph_entities_object_idx;
ALTER TABLE graph_entities DROP COLUMN object_canonical_id;
DELETE FROM embeddings WHERE owner_kind = 'object';
DELETE FROM embedding_queue WHERE owner_kind = 'object';
DELETE FROM lexical_statistics WHERE kind = 'object';
DELETE FROM lexical_frequencies WHERE kind = 'object';
ALTER TABLE lexical_statistics
    DROP CONSTRAINT lexical_statistics_kind_check,
    ADD CONSTRAINT lexical_statistics_kind_check CHECK (kind IN ('note', 'fact'));
ALTER TABLE lexical_frequencies
    DROP CONSTRAINT lexical_frequencies_kind_check,
    ADD CONSTRAINT lexical_frequencies_kind_check CHECK (kind IN ('note', 'fact'));
"""


def _grant(signature: str) -> None:
    op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
    op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def upgrade() -> None:
    execute_literal(TABLES)
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    op.execute(f"GRANT SELECT ON global_object_type_schemas, global_relationship_type_schemas TO {APP_ROLE}")
    for before, _ in RETYPED:
        op.execute(f"DROP FUNCTION {before}")
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        _grant(signature)
    for _, now in RETYPED:
        _grant(now)


def downgrade() -> None:
    for _, now in RETYPED:
        op.execute(f"DROP FUNCTION {now}")
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    for before, _ in RETYPED:
        _grant(before)
    execute_literal(UNDO)
    for signature in reversed(SIGNATURES):
        op.execute(f"DROP FUNCTION {signature}")
