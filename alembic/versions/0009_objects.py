"""Objects: branches, registries of types, versioned objects and relationships with their heads."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0009"
down_revision = "0007"
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
    CONSTRAINT graph_objects_pkey PRIMARY KEY (tenant_id, branch_id, canonical_id)
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
    CONSTRAINT graph_relationships_pkey PRIMARY KEY (tenant_id, branch_id, canonical_id)
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
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = ()

SIGNATURES: tuple[str, ...] = ("main_branch(text)",)
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
