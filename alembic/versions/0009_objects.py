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
CREATE INDEX graph_relationships_gone_idx ON graph_relationships (tenant_id, deleted_with)
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
    PERFORM FROM relationship_type_schemas t
    WHERE t.tenant_id = p_tenant AND t.status = 'active'
      AND t.type IN (SELECT r.type FROM json_to_recordset(p_rows) AS r(type text))
    ORDER BY t.type FOR SHARE;
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
    RETURN QUERY
    SELECT r.canonical_id,
           CASE WHEN r.canonical_id = ANY (v_made) THEN 'created' WHEN e.canonical_id IS NOT NULL THEN 'exists'
                WHEN (SELECT m.one_src FROM multiplicity_of(p_tenant, r.type) m) AND EXISTS (
                    SELECT FROM graph_relationships o
                    WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.src_id = r.src_id
                      AND o.type = r.type AND o.deleted_at IS NULL) THEN 'src'
                ELSE 'dst' END,
           e.canonical_id
    FROM json_to_recordset(p_rows) AS r(branch_id uuid, canonical_id uuid, type text, src_id uuid, dst_id uuid)
    LEFT JOIN graph_relationships e
        ON e.tenant_id = p_tenant AND e.branch_id = r.branch_id AND e.src_id = r.src_id AND e.dst_id = r.dst_id
       AND e.type = r.type AND e.deleted_at IS NULL AND e.canonical_id <> r.canonical_id;
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
CREATE OR REPLACE FUNCTION mark_multiplicity(p_type text, p_one_src boolean, p_one_dst boolean)
RETURNS TABLE (side text, object_id uuid, objects bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN QUERY
    WITH crowded AS (
        SELECT 'src' AS side, r.src_id AS object_id, max(r.project_id) AS project_id FROM graph_relationships r
        WHERE p_one_src AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.src_id HAVING count(*) > 1
        UNION ALL
        SELECT 'dst', r.dst_id, max(r.project_id) FROM graph_relationships r
        WHERE p_one_dst AND r.tenant_id = v_tenant AND r.type = p_type AND r.deleted_at IS NULL AND r.suppression = 0
        GROUP BY r.branch_id, r.dst_id HAVING count(*) > 1
    )
    SELECT c.side, shown.object_id, count(*) FROM crowded c
    CROSS JOIN LATERAL (
        SELECT CASE WHEN coalesce(c.project_id, v_project) = v_project THEN c.object_id END AS object_id) shown
    GROUP BY c.side, shown.object_id ORDER BY 1 DESC, 2 LIMIT 20;
    IF NOT FOUND THEN
        UPDATE graph_relationships r SET one_src = p_one_src, one_dst = p_one_dst
        WHERE r.tenant_id = v_tenant AND r.type = p_type AND (r.one_src <> p_one_src OR r.one_dst <> p_one_dst);
    END IF;
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
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple' ELSE project_language(p_tenant, p_project) END,
        left(concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text), 200000));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_words(p_properties jsonb)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN left((
        SELECT string_agg(v.value #>> '{}', ' ' ORDER BY v.place)
        FROM jsonb_path_query(p_properties, 'strict $.** ? (@.type() == "string" || @.type() == "number")')
            WITH ORDINALITY v(value, place)), 100000);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION relink_object(p_tenant text, p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_count bigint;
BEGIN
    WITH held AS (
        SELECT r.branch_id, r.canonical_id, r.version_id, make_id() AS next_id FROM graph_relationships r
        WHERE r.tenant_id = p_tenant AND r.deleted_with = p_object AND r.deleted_at IS NOT NULL
          AND NOT EXISTS (SELECT FROM graph_objects o
                          WHERE o.tenant_id = p_tenant AND o.canonical_id IN (r.src_id, r.dst_id)
                            AND o.canonical_id <> p_object AND o.deleted_at IS NOT NULL)
          AND NOT EXISTS (SELECT FROM graph_relationships o
                          WHERE o.tenant_id = p_tenant AND o.branch_id = r.branch_id AND o.deleted_at IS NULL
                            AND o.type = r.type AND o.src_id = r.src_id AND (o.dst_id = r.dst_id OR r.one_src))
          AND NOT EXISTS (SELECT FROM graph_relationships o
                          WHERE r.one_dst AND o.tenant_id = p_tenant AND o.branch_id = r.branch_id
                            AND o.deleted_at IS NULL AND o.type = r.type AND o.dst_id = r.dst_id)
        ORDER BY r.canonical_id FOR UPDATE
    ), back AS (
        UPDATE graph_relationships r
        SET version_id = h.next_id, version = r.version + 1, deleted_at = NULL, updated_at = p_now, deleted_with = NULL
        FROM held h
        WHERE r.tenant_id = p_tenant AND r.canonical_id = h.canonical_id AND r.branch_id = h.branch_id
        RETURNING r.*, h.version_id AS before_id
    ), told AS (
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
            supersedes_id, change_summary, written_by, created_at)
        SELECT b.tenant_id, b.branch_id, b.canonical_id, b.version_id, b.version, b.project_id, b.type, b.src_id,
               b.dst_id, b.weight, b.role_src, b.role_dst, b.valid_from, b.valid_to, b.properties, b.evidence,
               b.content_hash, b.schema_version, NULL, b.suppression, b.before_id,
               jsonb_build_object('added', '{}'::jsonb, 'removed', '[]'::jsonb, 'updated', '{}'::jsonb,
                   'paths', '[]'::jsonb, 'meta', jsonb_build_object('added', 0, 'removed', 0, 'updated', 0,
                                                                    'restored', true)),
               p_agent, p_now
        FROM back b
        RETURNING version_id
    ) SELECT count(*) INTO v_count FROM told;
    RETURN v_count;
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
    RETURN QUERY SELECT unnest(v_stored);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION unlink_object(p_tenant text, p_agent text, p_object uuid, p_now timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_count bigint;
BEGIN
    WITH held AS (
        SELECT r.branch_id, r.canonical_id, r.version_id, make_id() AS next_id FROM graph_relationships r
        WHERE r.tenant_id = p_tenant AND r.deleted_at IS NULL
          AND r.branch_id IN (SELECT b.branch_id FROM branches b WHERE b.tenant_id = p_tenant)
          AND (r.src_id = p_object OR r.dst_id = p_object)
        ORDER BY r.canonical_id FOR UPDATE
    ), gone AS (
        UPDATE graph_relationships r
        SET version_id = h.next_id, version = r.version + 1, deleted_at = p_now, updated_at = p_now,
            deleted_with = p_object
        FROM held h
        WHERE r.tenant_id = p_tenant AND r.canonical_id = h.canonical_id AND r.branch_id = h.branch_id
        RETURNING r.*, h.version_id AS before_id
    ), told AS (
        INSERT INTO graph_relationship_versions (
            tenant_id, branch_id, canonical_id, version_id, version, project_id, type, src_id, dst_id, weight, role_src,
            role_dst, valid_from, valid_to, properties, evidence, content_hash, schema_version, deleted_at, suppression,
            supersedes_id, change_summary, written_by, created_at)
        SELECT g.tenant_id, g.branch_id, g.canonical_id, g.version_id, g.version, g.project_id, g.type, g.src_id,
               g.dst_id, g.weight, g.role_src, g.role_dst, g.valid_from, g.valid_to, g.properties, g.evidence,
               g.content_hash, g.schema_version, g.deleted_at, g.suppression, g.before_id,
               jsonb_build_object('added', '{}'::jsonb, 'removed', p.paths, 'updated', '{}'::jsonb, 'paths', p.paths,
                   'meta', jsonb_build_object('added', 0, 'removed', jsonb_array_length(p.paths), 'updated', 0,
                                              'deleted', true)),
               p_agent, p_now
        FROM gone g
        CROSS JOIN LATERAL (
            SELECT coalesce(jsonb_agg('/' || replace(replace(k.name, '~', '~0'), '/', '~1') ORDER BY k.name), '[]')
                   AS paths
            FROM jsonb_object_keys(g.properties) k(name)) p
        RETURNING version_id
    ) SELECT count(*) INTO v_count FROM told;
    RETURN v_count;
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = ()

SIGNATURES: tuple[str, ...] = (
    "change_object(text, text, json, timestamptz)",
    "change_relationship(text, text, json, timestamptz)",
    "contain_objects(uuid, uuid, text, text, text, text, text[], jsonb, uuid, int)",
    "link_objects(text, text, json, timestamptz)",
    "main_branch(text)",
    "mark_multiplicity(text, boolean, boolean)",
    "multiplicity_of(text, text)",
    "object_terms(text, text, text, text, text[], text)",
    "object_words(jsonb)",
    "relink_object(text, text, uuid, timestamptz)",
    "store_objects(text, text, json, timestamptz)",
    "unlink_object(text, text, uuid, timestamptz)",
)
# Functions that answer otherwise than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = ()

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
