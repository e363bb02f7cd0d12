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
        v_found := list_paths(v_roots, w.heres, w.theres, w.levels, p_depth, p_phased, p_most_paths);
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
    EXECUTE format(
        'SELECT string_agg(concat(''{"id":"'', x.canonical_id, ''","src":"'', x.src_id, ''","dst":"'', x.dst_id, ''"'''
        '%s, ''}''), '',''), count(*), %s FROM (%s) x',
        fragment_clause(p_include -> 'edge'),
        CASE WHEN p_paths AND p_dedupe = 'edge' THEN 'array_agg(x.here), array_agg(x.there)' ELSE 'NULL, NULL' END,
        v_chosen)
    INTO edges, edge_count, v_heres, v_theres
    USING w.edges, w.heres, w.theres, w.outs, w.types, w.weights, w.levels, w.links, v_heres, v_theres;
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
        v_parts := v_parts || ', '',"properties":'', ' || property_clause(p_include -> 'properties', '{}');
    END IF;
    RETURN v_parts;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION list_paths(
    p_roots uuid[], p_heres uuid[], p_theres uuid[], p_levels int[], p_depth int, p_phased boolean, p_limit int,
    OUT paths text[], OUT heres uuid[], OUT theres uuid[])
LANGUAGE plpgsql IMMUTABLE
SET enable_nestloop = off
SET enable_mergejoin = off
SET work_mem = 65536
AS $$
DECLARE
    v_front text[];
    v_last uuid[];
    v_before uuid[];
    v_room int;
BEGIN
    SELECT array_agg('"' || r.id || '"' ORDER BY r.id), array_agg(r.id ORDER BY r.id) INTO v_front, v_last
    FROM unnest(p_roots) r(id);
    heres := '{}';
    theres := '{}';
    paths := v_front[: p_limit + 1];
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_limit - cardinality(paths);
        EXIT WHEN v_room < 0;
        SELECT array_agg(n.path), array_agg(n.there), array_agg(n.here) INTO v_front, v_last, v_before
        FROM (
            SELECT f.path || ',"' || a.there || '"' AS path, a.there, a.here
            FROM unnest(v_front, v_last) f(path, last)
            JOIN (
                SELECT DISTINCT e.here, e.there FROM unnest(p_heres, p_theres, p_levels) e(here, there, level)
                WHERE NOT p_phased OR e.level = v_level
            ) a ON a.here = f.last
            WHERE strpos(f.path, a.there::text) = 0
            ORDER BY (f.path || ',"' || a.there || '"') COLLATE "C" LIMIT v_room + 1
        ) n;
        EXIT WHEN v_front IS NULL;
        paths := paths || v_front;
        heres := heres || v_before[:v_room];
        theres := theres || v_last[:v_room];
    END LOOP;
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
CREATE OR REPLACE FUNCTION property_clause(p_tree jsonb, p_path text[])
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_name text;
    v_inner jsonb;
    v_there text;
    v_parts text := '';
BEGIN
    FOR v_name, v_inner IN SELECT m.key, m.value FROM jsonb_each(p_tree) m LOOP
        v_there := format('point_at(x.properties, %L::text[])', p_path || v_name);
        v_parts := v_parts || format(
            ', CASE WHEN %1$s IS NOT NULL THEN %2$L || %3$s END', v_there, to_json(v_name)::text || ':',
            CASE WHEN v_inner = 'true'::jsonb THEN format('(%s)::text', v_there)
                 ELSE property_clause(v_inner, p_path || v_name) END);
    END LOOP;
    RETURN format('concat(''{'', concat_ws('',''%s), ''}'')', v_parts);
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
            EXECUTE v_look INTO v_new, v_texts USING v_tried, p_cap + 1, ',"depth":0}';
            v_front := coalesce(v_new[:p_cap], '{}');
            IF cardinality(v_new) > p_cap THEN
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
                'SELECT array_agg(e.canonical_id), array_agg(f.id), array_agg(e.there), array_agg(e.out), '
                'array_agg(e.type), array_agg(e.weight) FROM unnest($1) f(id) CROSS JOIN LATERAL %s LIMIT %s) e',
                v_beyond, p_fan);
            v_beyond := format(
                'SELECT EXISTS (SELECT FROM unnest($1) f(id) CROSS JOIN LATERAL %s OFFSET %s LIMIT 1) e)',
                v_beyond, p_fan);
        END IF;
        EXIT WHEN v_legs = '{}';
        EXECUTE v_cross INTO v_edges, v_heres, v_theres, v_outs, v_types, v_weights USING v_front;
        EXIT WHEN v_edges IS NULL;
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
            EXECUTE v_look INTO v_reached, v_texts USING v_tried, NULL::int, format(',"depth":%s}', v_level);
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
            EXECUTE v_look INTO v_new, v_texts USING v_tried, v_room + 1, format(',"depth":%s}', v_level);
            v_front := coalesce(v_new[:v_room], '{}');
        END IF;
        IF cardinality(v_new) > v_room THEN
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
)

# And as they were.
OLD_FUNCTIONS: tuple[str, ...] = ()

SIGNATURES: tuple[str, ...] = (
    "check_types(text, uuid[], text, text[])",
    (
        "expand_objects(text, text, uuid[], jsonb, boolean, int, timestamptz, int, int, int, text, boolean, "
        "boolean, int, jsonb)"
    ),
    "filter_clause(jsonb)",
    "find_roots(text, uuid[], uuid[], timestamptz)",
    "fragment_clause(jsonb)",
    "list_paths(uuid[], uuid[], uuid[], int[], int, boolean, int)",
    "main_branch(text)",
    "point_at(jsonb, text[])",
    "property_clause(jsonb, text[])",
    "reach_of(text, text)",
    "traverse_objects(text, text, uuid[], jsonb, int, int, int, int, uuid, boolean, int)",
    (
        "walk_objects(text, uuid[], uuid[], uuid[], jsonb, boolean, boolean, int, timestamptz, int, int, int, "
        "boolean, jsonb)"
    ),
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
