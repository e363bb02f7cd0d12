"""The schema of the first release: tables, indexes, policies, types, and the functions that the schema itself uses.

All other functions belong to the release and lie under alembic/functions (see app/db/functions.py).
"""

from collections.abc import Callable

from alembic import op
from app.db.functions import remove_functions
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0001_baseline"
down_revision = None
branch_labels = None
depends_on = None

compatibility_level = 1

PARTITIONS = 8

TYPES = """
CREATE TYPE fact_draft AS (
    idx integer, fact_id uuid, s integer, p integer, o integer, subject_id uuid, predicate_id uuid, object_id uuid,
    predicate text, value text, value_type text, value_json text, object_hash bytea, scope text, owner_key text,
    garden_id uuid, confidence double precision, source text, source_trust double precision, hlc text,
    valid_from timestamptz, valid_to timestamptz, timed boolean, created_at timestamptz, mode smallint,
    suppression smallint, turn integer, note_id uuid, refused text, field text
);
CREATE TYPE fact_step AS (
    idx integer, fact_id uuid, is_new boolean, ends timestamptz, held_until timestamptz, other_id uuid,
    other_from timestamptz, next_id uuid, stretches boolean
);
"""

# Generated columns and index expressions call these: a change of one is a migration that rebuilds what it computes.
SCHEMA_FUNCTIONS = {
    "count_terms": """
-- How many words a text has that are searched for, repetitions counted.
CREATE OR REPLACE FUNCTION count_terms(p_terms tsvector)
RETURNS int
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce((SELECT sum(cardinality(t.positions)) FROM unnest(p_terms) t), 0);
END
$$;
""",
    "lexical_keys": """
-- The terms of a document as the index has them: each behind a mark of its tenant and project, so that a search never
-- walks through what belongs to others.
CREATE OR REPLACE FUNCTION lexical_keys(p_tenant text, p_project text, p_terms text[])
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_mark text := left(md5(p_tenant || '/' || p_project), 8);
    v_keys text[] := '{}';
    v_term text;
BEGIN
    FOREACH v_term IN ARRAY p_terms LOOP
        v_keys := v_keys || (v_mark || v_term);
    END LOOP;
    RETURN v_keys;
END
$$;
""",
}

TENANCY = """
CREATE TABLE tenants (
    tenant_id text NOT NULL,
    name text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenants_tenant_id_check CHECK (tenant_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$')
);
CREATE TABLE projects (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    name text NOT NULL,
    settings jsonb DEFAULT '{}' NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT projects_pkey PRIMARY KEY (tenant_id, project_id),
    CONSTRAINT projects_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(tenant_id),
    CONSTRAINT projects_project_id_check CHECK (project_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$')
);
CREATE TABLE api_keys (
    tenant_id text NOT NULL,
    key_id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    agent_id text NOT NULL,
    project_id text,
    scopes text[] NOT NULL,
    rate_limits jsonb DEFAULT '{}' NOT NULL,
    secret_hash bytea NOT NULL,
    previous_hash bytea,
    previous_until timestamptz,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    last_used_at timestamptz,
    rotated_at timestamptz,
    revoked_at timestamptz,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY (tenant_id) REFERENCES tenants(tenant_id),
    CONSTRAINT api_keys_tenant_id_project_id_fkey FOREIGN KEY (tenant_id, project_id)
        REFERENCES projects(tenant_id, project_id),
    CONSTRAINT api_keys_kind_check CHECK (kind IN ('agent', 'admin')),
    CONSTRAINT api_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32)
);
COMMENT ON COLUMN api_keys.project_id IS 'NULL: the key spans all projects of the tenant';
COMMENT ON COLUMN api_keys.secret_hash IS 'SHA-256 of the secret; the secret is stored nowhere';
COMMENT ON COLUMN api_keys.previous_hash IS 'after a rotation with grace';
CREATE INDEX api_keys_lookup_idx ON api_keys (key_id);
CREATE TABLE platform_keys (
    key_id uuid NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz,
    CONSTRAINT platform_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT platform_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32)
);
CREATE TABLE gardens (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    garden_id uuid NOT NULL,
    slug text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    description text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT gardens_pkey PRIMARY KEY (tenant_id, garden_id),
    CONSTRAINT gardens_project_key UNIQUE (tenant_id, project_id, garden_id),
    CONSTRAINT gardens_slug_key UNIQUE (tenant_id, project_id, slug),
    CONSTRAINT gardens_tenant_id_project_id_fkey FOREIGN KEY (tenant_id, project_id)
        REFERENCES projects(tenant_id, project_id),
    CONSTRAINT gardens_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT gardens_slug_check CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);
CREATE TABLE garden_members (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    garden_id uuid NOT NULL,
    agent_id text NOT NULL,
    role text NOT NULL,
    added_by text NOT NULL,
    added_at timestamptz NOT NULL,
    CONSTRAINT garden_members_pkey PRIMARY KEY (tenant_id, garden_id, agent_id),
    CONSTRAINT garden_members_tenant_id_project_id_garden_id_fkey FOREIGN KEY (tenant_id, project_id, garden_id)
        REFERENCES gardens(tenant_id, project_id, garden_id) ON DELETE CASCADE,
    CONSTRAINT garden_members_role_check CHECK (role IN ('admin', 'writer', 'reader'))
);
CREATE INDEX garden_members_agent_idx ON garden_members (tenant_id, project_id, agent_id);
CREATE TABLE service_secrets (
    name text NOT NULL,
    secret bytea NOT NULL,
    CONSTRAINT service_secrets_pkey PRIMARY KEY (name)
);
CREATE TABLE branches (
    tenant_id text NOT NULL,
    branch_id uuid NOT NULL,
    project_id text,
    name text NOT NULL,
    parent_branch_id uuid,
    created_from_branch_head_at timestamptz,
    created_at timestamptz NOT NULL,
    CONSTRAINT branches_pkey PRIMARY KEY (tenant_id, branch_id),
    CONSTRAINT branches_tenant_id_parent_branch_id_fkey FOREIGN KEY (tenant_id, parent_branch_id)
        REFERENCES branches(tenant_id, branch_id)
);
COMMENT ON COLUMN branches.project_id IS 'NULL: of objects that belong to no project';
CREATE UNIQUE INDEX branches_name_key ON branches (tenant_id, project_id, name) NULLS NOT DISTINCT;
"""

WEB = """
CREATE TABLE idempotency_keys (
    tenant_id text NOT NULL,
    key_id uuid NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    idempotency_key text NOT NULL,
    request_hash bytea NOT NULL,
    status smallint,
    body bytea,
    sealed boolean NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, key_id, method, path, idempotency_key),
    CONSTRAINT idempotency_keys_idempotency_key_check CHECK (char_length(idempotency_key) <= 255)
);
COMMENT ON COLUMN idempotency_keys.status IS 'NULL only inside the transaction of the effect';
COMMENT ON COLUMN idempotency_keys.sealed IS 'the body is encrypted with the caller''s secret';
CREATE INDEX idempotency_keys_expiry_idx ON idempotency_keys (tenant_id, expires_at);
CREATE TABLE rate_windows (
    tenant_id text NOT NULL,
    key_id uuid NOT NULL,
    work text NOT NULL,
    slots bigint[] NOT NULL,
    counts integer[] NOT NULL,
    CONSTRAINT rate_windows_pkey PRIMARY KEY (tenant_id, key_id, work),
    CONSTRAINT rate_windows_tenant_id_key_id_fkey FOREIGN KEY (tenant_id, key_id)
        REFERENCES api_keys(tenant_id, key_id)
);
"""

JOBS = """
CREATE TABLE jobs (
    tenant_id text NOT NULL,
    job_id uuid NOT NULL,
    project_id text,
    agent_id text DEFAULT '' NOT NULL,
    kind text NOT NULL,
    status text DEFAULT 'pending' NOT NULL,
    payload jsonb NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    dedupe_key text,
    available_at timestamptz NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    max_attempts integer DEFAULT 5 NOT NULL,
    lease_owner text,
    lease_expires_at timestamptz,
    last_error text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    result jsonb,
    CONSTRAINT jobs_pkey PRIMARY KEY (tenant_id, job_id),
    CONSTRAINT jobs_attempts_check CHECK (attempts >= 0 AND max_attempts >= 1),
    CONSTRAINT jobs_kind_check CHECK (kind ~ '^[a-z][a-z0-9_]{0,62}$'),
    CONSTRAINT jobs_lease_check CHECK ((status = 'leased') = (lease_owner IS NOT NULL)),
    CONSTRAINT jobs_status_check CHECK (status IN ('pending', 'leased', 'completed', 'failed', 'dead', 'cancelled'))
);
COMMENT ON COLUMN jobs.project_id IS 'NULL: the job is the whole tenant''s';
COMMENT ON COLUMN jobs.created_by IS 'the id of the key whose request made it, or schedule';
COMMENT ON COLUMN jobs.result IS 'what came of it, without content';
CREATE INDEX jobs_dead_idx ON jobs (kind) WHERE status = 'dead';
CREATE INDEX jobs_due_idx ON jobs (tenant_id, kind, available_at) WHERE status = 'pending';
CREATE INDEX jobs_finished_idx ON jobs (tenant_id, finished_at) WHERE status IN ('completed', 'cancelled');
CREATE INDEX jobs_leased_idx ON jobs (lease_expires_at) WHERE status = 'leased';
CREATE INDEX jobs_list_idx ON jobs (tenant_id, created_at, job_id);
CREATE INDEX jobs_lost_idx ON jobs (tenant_id, finished_at) WHERE status IN ('dead', 'failed');
CREATE UNIQUE INDEX jobs_open_key ON jobs (tenant_id, project_id, kind, dedupe_key) NULLS NOT DISTINCT
    WHERE status IN ('pending', 'leased') AND dedupe_key IS NOT NULL;
CREATE INDEX jobs_turn_idx ON jobs (tenant_id, kind, priority DESC, available_at, job_id) WHERE status = 'pending';
"""

AUDIT = """
CREATE TABLE audit_log (
    tenant_id text NOT NULL,
    event_id uuid NOT NULL,
    project_id text,
    event_type text NOT NULL,
    key_id text NOT NULL,
    agent_id text NOT NULL,
    details jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    sequence bigint,
    previous_hash bytea,
    hash bytea,
    sealed_at timestamptz,
    CONSTRAINT audit_log_pkey PRIMARY KEY (tenant_id, event_id),
    CONSTRAINT audit_log_event_type_check
        CHECK (event_type IN ('fact_write', 'fact_read', 'key_issue', 'key_revoke', 'key_rotation',
            'quarantine_admit', 'quarantine_release', 'quota_breach', 'admin_action', 'tombstone_issued',
            'tombstone_revoked', 'rtbf_legal_hold_issued', 'erasure_completed', 'object_write')),
    CONSTRAINT audit_log_sequence_check CHECK (sequence > 0)
);
COMMENT ON COLUMN audit_log.sequence IS 'its place in the tenant''s chain; NULL until sealed';
CREATE UNIQUE INDEX audit_log_sequence_key ON audit_log (tenant_id, sequence);
CREATE INDEX audit_log_time_idx ON audit_log (tenant_id, created_at, event_id);
CREATE INDEX audit_log_unsealed_idx ON audit_log (tenant_id, created_at, event_id) WHERE sequence IS NULL;
CREATE TABLE audit_chains (
    tenant_id text NOT NULL,
    sequence bigint NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT audit_chains_pkey PRIMARY KEY (tenant_id)
);
"""

NOTES = """
CREATE TABLE memory_notes (
    tenant_id text NOT NULL,
    note_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    owner_key text NOT NULL,
    type text NOT NULL,
    content text NOT NULL,
    content_hash text NOT NULL,
    tags text[] NOT NULL,
    author text,
    occurred_at timestamptz NOT NULL,
    thread_id text,
    "position" integer,
    pinned boolean NOT NULL,
    extraction_status text DEFAULT 'none' NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    deleted_at timestamptz,
    terms tsvector DEFAULT '' NOT NULL,
    terms_length integer GENERATED ALWAYS AS (count_terms(terms)) STORED,
    telling integer DEFAULT 0 NOT NULL,
    derived_from uuid,
    confidence double precision,
    extraction_model text,
    CONSTRAINT memory_notes_pkey PRIMARY KEY (tenant_id, note_id),
    CONSTRAINT memory_notes_confidence_check CHECK (confidence >= 0 AND confidence <= 1),
    CONSTRAINT memory_notes_extraction_status_check
        CHECK (extraction_status IN ('none', 'pending', 'completed', 'failed')),
    CONSTRAINT memory_notes_position_check CHECK ("position" IS NULL OR thread_id IS NOT NULL),
    CONSTRAINT memory_notes_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT memory_notes_type_check
        CHECK (type IN ('fact', 'preference', 'decision', 'procedural', 'semantic', 'constraint', 'profile', 'plan',
            'document_chunk'))
);
ALTER TABLE memory_notes ALTER COLUMN terms SET STORAGE MAIN;
COMMENT ON COLUMN memory_notes.owner_key IS 'the agent under agent_private, else the garden, else nothing';
COMMENT ON COLUMN memory_notes.telling IS 'how many terms it has outside of questions';
COMMENT ON COLUMN memory_notes.derived_from IS 'the note it was extracted from';
CREATE INDEX memory_notes_deleted_idx ON memory_notes (tenant_id, deleted_at, note_id) WHERE deleted_at IS NOT NULL;
CREATE INDEX memory_notes_derived_idx ON memory_notes (tenant_id, derived_from) WHERE derived_from IS NOT NULL;
CREATE INDEX memory_notes_hash_idx ON memory_notes (tenant_id, project_id, content_hash) WHERE deleted_at IS NULL;
CREATE INDEX memory_notes_list_idx ON memory_notes (tenant_id, project_id, created_at, note_id);
CREATE UNIQUE INDEX memory_notes_live_key
    ON memory_notes (tenant_id, project_id, scope, owner_key, thread_id, "position", content_hash)
    NULLS NOT DISTINCT
    WHERE deleted_at IS NULL AND suppression = 0;
CREATE INDEX memory_notes_terms_idx
    ON memory_notes USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
CREATE INDEX memory_notes_thread_idx ON memory_notes (tenant_id, project_id, thread_id, "position")
    WHERE thread_id IS NOT NULL;
CREATE TABLE memory_history (
    tenant_id text NOT NULL,
    history_id uuid NOT NULL,
    project_id text NOT NULL,
    note_id uuid NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    event text NOT NULL,
    version integer NOT NULL,
    changed_by text NOT NULL,
    reason text,
    old_content text,
    new_content text,
    created_at timestamptz NOT NULL,
    proposal jsonb,
    before jsonb,
    CONSTRAINT memory_history_pkey PRIMARY KEY (tenant_id, history_id),
    CONSTRAINT memory_history_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_history_event_check
        CHECK (event IN ('created', 'updated', 'deleted', 'recovered', 'merged', 'none', 'split'))
);
COMMENT ON COLUMN memory_history.agent_id IS 'the note''s agent, so that its policy holds here too';
COMMENT ON COLUMN memory_history.proposal IS 'what the pipeline proposed, and what became of it';
COMMENT ON COLUMN memory_history.before IS 'the other fields that changed, as they were';
CREATE INDEX memory_history_note_idx ON memory_history (tenant_id, note_id, history_id);
"""

FACTS = """
CREATE TABLE graph_entities (
    tenant_id text NOT NULL,
    entity_id uuid NOT NULL,
    project_id text NOT NULL,
    canonical text NOT NULL,
    canonical_norm text NOT NULL COLLATE "C",
    kind text,
    merged_into uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    erased_scopes text[],
    held_scopes text[],
    decoy_id uuid,
    object_canonical_id uuid,
    CONSTRAINT graph_entities_name_key UNIQUE (tenant_id, project_id, canonical_norm),
    CONSTRAINT graph_entities_pkey PRIMARY KEY (tenant_id, entity_id),
    CONSTRAINT graph_entities_tenant_id_merged_into_fkey FOREIGN KEY (tenant_id, merged_into)
        REFERENCES graph_entities(tenant_id, entity_id),
    CONSTRAINT graph_entities_canonical_norm_check CHECK (canonical_norm <> '')
);
COMMENT ON COLUMN graph_entities.merged_into IS 'never a chain: a merge moves what points here';
COMMENT ON COLUMN graph_entities.erased_scopes IS 'where tombstones hide it from everyone';
COMMENT ON COLUMN graph_entities.held_scopes IS 'where legal holds hide it';
COMMENT ON COLUMN graph_entities.decoy_id IS 'shown to writers who must not know that it is hidden';
COMMENT ON COLUMN graph_entities.object_canonical_id IS 'the object that stands for it';
CREATE INDEX graph_entities_merged_idx ON graph_entities (tenant_id, merged_into) WHERE merged_into IS NOT NULL;
CREATE INDEX graph_entities_object_idx ON graph_entities (tenant_id, object_canonical_id)
    WHERE object_canonical_id IS NOT NULL;
CREATE TABLE graph_entity_aliases (
    tenant_id text NOT NULL,
    alias_id uuid NOT NULL,
    project_id text NOT NULL,
    entity_id uuid NOT NULL,
    alias text NOT NULL,
    alias_norm text NOT NULL COLLATE "C",
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT graph_entity_aliases_alias_key UNIQUE (tenant_id, entity_id, alias_norm),
    CONSTRAINT graph_entity_aliases_pkey PRIMARY KEY (tenant_id, alias_id),
    CONSTRAINT graph_entity_aliases_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX graph_entity_aliases_norm_idx ON graph_entity_aliases (tenant_id, project_id, alias_norm);
CREATE TABLE graph_predicates (
    tenant_id text NOT NULL,
    predicate_id uuid NOT NULL,
    scope_key text NOT NULL,
    project_id text,
    canonical text NOT NULL,
    canonical_norm text NOT NULL COLLATE "C",
    cardinality text NOT NULL,
    status text NOT NULL,
    global boolean DEFAULT false NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT graph_predicates_name_key UNIQUE (tenant_id, scope_key, canonical_norm),
    CONSTRAINT graph_predicates_pkey PRIMARY KEY (tenant_id, predicate_id),
    CONSTRAINT graph_predicates_canonical_norm_check CHECK (canonical_norm <> ''),
    CONSTRAINT graph_predicates_cardinality_check CHECK (cardinality IN ('single', 'multi')),
    CONSTRAINT graph_predicates_scope_key_check
        CHECK ((scope_key = CASE WHEN global THEN '__global__' ELSE ((tenant_id || ':') || coalesce(project_id,
            '*')) END) AND (project_id IS NULL OR (NOT global))),
    CONSTRAINT graph_predicates_status_check CHECK (status IN ('pending', 'active', 'deprecated'))
);
COMMENT ON COLUMN graph_predicates.scope_key IS 'tenant:project, tenant:*, or __global__';
COMMENT ON COLUMN graph_predicates.project_id IS 'NULL: for every project of the tenant';
CREATE TABLE graph_predicate_aliases (
    tenant_id text NOT NULL,
    alias_id uuid NOT NULL,
    scope_key text NOT NULL,
    project_id text,
    predicate_id uuid NOT NULL,
    alias text NOT NULL,
    alias_norm text NOT NULL COLLATE "C",
    created_at timestamptz NOT NULL,
    CONSTRAINT graph_predicate_aliases_alias_key UNIQUE (tenant_id, scope_key, alias_norm),
    CONSTRAINT graph_predicate_aliases_pkey PRIMARY KEY (tenant_id, alias_id),
    CONSTRAINT graph_predicate_aliases_tenant_id_predicate_id_fkey FOREIGN KEY (tenant_id, predicate_id)
        REFERENCES graph_predicates(tenant_id, predicate_id) ON DELETE CASCADE,
    CONSTRAINT graph_predicate_aliases_scope_key_check
        CHECK (scope_key = ((tenant_id || ':') || coalesce(project_id, '*')))
);
CREATE INDEX graph_predicate_aliases_predicate_idx ON graph_predicate_aliases (tenant_id, predicate_id);
CREATE TABLE global_predicates (
    predicate_id uuid NOT NULL,
    canonical text NOT NULL,
    canonical_norm text NOT NULL COLLATE "C",
    cardinality text NOT NULL,
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT global_predicates_name_key UNIQUE (canonical_norm),
    CONSTRAINT global_predicates_pkey PRIMARY KEY (predicate_id),
    CONSTRAINT global_predicates_cardinality_check CHECK (cardinality IN ('single', 'multi')),
    CONSTRAINT global_predicates_status_check CHECK (status IN ('pending', 'active', 'deprecated'))
);
CREATE TABLE global_predicate_aliases (
    alias_norm text NOT NULL COLLATE "C",
    alias text NOT NULL,
    predicate_id uuid NOT NULL,
    CONSTRAINT global_predicate_aliases_pkey PRIMARY KEY (alias_norm),
    CONSTRAINT global_predicate_aliases_predicate_id_fkey FOREIGN KEY (predicate_id)
        REFERENCES global_predicates(predicate_id) ON DELETE CASCADE
);
CREATE TABLE graph_facts (
    tenant_id text NOT NULL,
    fact_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    owner_key text NOT NULL,
    subject_entity_id uuid NOT NULL,
    predicate text NOT NULL,
    predicate_id uuid NOT NULL,
    object_entity_id uuid,
    object_value text,
    object_hash bytea NOT NULL,
    value_type text NOT NULL,
    confidence double precision NOT NULL,
    source text,
    source_trust double precision NOT NULL,
    fact_hash bytea NOT NULL,
    hlc text NOT NULL,
    mentions integer DEFAULT 1 NOT NULL,
    access_count integer DEFAULT 0 NOT NULL,
    last_accessed_at timestamptz,
    single_valued boolean NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    origin text,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz,
    valid_until timestamptz GENERATED ALWAYS AS (coalesce(valid_to, 'infinity')) STORED,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    closed_at timestamptz,
    retracted_at timestamptz,
    weighed_at timestamptz,
    terms tsvector DEFAULT '' NOT NULL,
    terms_length integer GENERATED ALWAYS AS (count_terms(terms)) STORED,
    CONSTRAINT graph_facts_pkey PRIMARY KEY (tenant_id, fact_id),
    CONSTRAINT graph_facts_tenant_id_object_entity_id_fkey FOREIGN KEY (tenant_id, object_entity_id)
        REFERENCES graph_entities(tenant_id, entity_id),
    CONSTRAINT graph_facts_tenant_id_predicate_id_fkey FOREIGN KEY (tenant_id, predicate_id)
        REFERENCES graph_predicates(tenant_id, predicate_id),
    CONSTRAINT graph_facts_tenant_id_subject_entity_id_fkey FOREIGN KEY (tenant_id, subject_entity_id)
        REFERENCES graph_entities(tenant_id, entity_id),
    CONSTRAINT graph_facts_confidence_check CHECK (confidence >= 0 AND confidence <= 1),
    CONSTRAINT graph_facts_object_check CHECK ((object_entity_id IS NULL) <> (object_value IS NULL)),
    CONSTRAINT graph_facts_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT graph_facts_valid_to_check CHECK (valid_to IS NULL OR (valid_to > valid_from)),
    CONSTRAINT graph_facts_value_type_check
        CHECK (value_type IN ('entity', 'string', 'text', 'number', 'boolean', 'datetime', 'ref', 'null'))
);
COMMENT ON COLUMN graph_facts.owner_key IS 'the agent under agent_private, else the garden, else nothing';
COMMENT ON COLUMN graph_facts.predicate IS 'as the writer called it';
COMMENT ON COLUMN graph_facts.object_hash IS 'SHA-256 of type and value, or of the entity''s id';
COMMENT ON COLUMN graph_facts.origin IS 'the peer it came from';
COMMENT ON COLUMN graph_facts.closed_at IS 'when valid_to was last set';
COMMENT ON COLUMN graph_facts.weighed_at IS 'when its confidence last changed';
CREATE INDEX graph_facts_belief_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, predicate_id, object_hash, valid_from);
CREATE INDEX graph_facts_closed_idx ON graph_facts (tenant_id, project_id, closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX graph_facts_hash_idx ON graph_facts (tenant_id, fact_hash);
CREATE INDEX graph_facts_list_idx ON graph_facts (tenant_id, project_id, created_at, fact_id);
CREATE INDEX graph_facts_object_idx ON graph_facts (tenant_id, project_id, object_entity_id, valid_until)
    WHERE object_entity_id IS NOT NULL;
CREATE UNIQUE INDEX graph_facts_open_entity_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_entity_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND object_entity_id IS NOT NULL;
CREATE INDEX graph_facts_open_idx ON graph_facts (tenant_id, project_id, created_at, fact_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL;
CREATE INDEX graph_facts_open_predicate_idx
    ON graph_facts (tenant_id, project_id, predicate_id, created_at, fact_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL;
CREATE UNIQUE INDEX graph_facts_open_single_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND single_valued;
CREATE UNIQUE INDEX graph_facts_open_value_key
    ON graph_facts (tenant_id, project_id, scope, owner_key, subject_entity_id, predicate_id, object_hash)
    WHERE valid_to IS NULL AND retracted_at IS NULL AND suppression = 0 AND object_value IS NOT NULL;
CREATE INDEX graph_facts_predicate_idx
    ON graph_facts (tenant_id, project_id, predicate_id, valid_until, valid_from);
CREATE INDEX graph_facts_retracted_idx ON graph_facts (tenant_id, project_id, retracted_at)
    WHERE retracted_at IS NOT NULL;
CREATE INDEX graph_facts_source_idx ON graph_facts (tenant_id, project_id, source, created_at)
    WHERE source IS NOT NULL;
CREATE INDEX graph_facts_subject_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, valid_until, valid_from);
CREATE INDEX graph_facts_terms_idx
    ON graph_facts USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms)))
    WITH (fastupdate = off);
CREATE INDEX graph_facts_timeline_idx
    ON graph_facts (tenant_id, project_id, subject_entity_id, predicate_id, valid_from);
CREATE INDEX graph_facts_valid_idx ON graph_facts (tenant_id, project_id, valid_until) WHERE valid_to IS NOT NULL;
CREATE TABLE entity_edges (
    tenant_id text NOT NULL,
    edge_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    owner_key text NOT NULL,
    subject_entity_id uuid NOT NULL,
    predicate_id uuid NOT NULL,
    object_entity_id uuid NOT NULL,
    confidence double precision NOT NULL,
    source_trust double precision NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_to timestamptz,
    valid_until timestamptz GENERATED ALWAYS AS (coalesce(valid_to, 'infinity')) STORED,
    created_at timestamptz NOT NULL,
    closed_at timestamptz,
    retracted_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    weighed_at timestamptz,
    decayed_at timestamptz,
    CONSTRAINT entity_edges_pkey PRIMARY KEY (tenant_id, edge_id),
    CONSTRAINT entity_edges_tenant_id_edge_id_fkey FOREIGN KEY (tenant_id, edge_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE
);
COMMENT ON COLUMN entity_edges.edge_id IS 'the fact''s id';
COMMENT ON COLUMN entity_edges.weighed_at IS 'when its confidence last changed';
COMMENT ON COLUMN entity_edges.decayed_at IS 'when it last lost confidence to time';
CREATE INDEX entity_edges_in_idx
    ON entity_edges (tenant_id, project_id, object_entity_id, scope, confidence, edge_id)
    INCLUDE (subject_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression);
CREATE INDEX entity_edges_out_idx
    ON entity_edges (tenant_id, project_id, subject_entity_id, scope, confidence, edge_id)
    INCLUDE (object_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
        retracted_at, weighed_at, agent_id, garden_id, suppression);
CREATE TABLE graph_fact_evidence (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    evidence_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    note_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT graph_fact_evidence_note_key UNIQUE (tenant_id, fact_id, note_id),
    CONSTRAINT graph_fact_evidence_pkey PRIMARY KEY (tenant_id, evidence_id),
    CONSTRAINT graph_fact_evidence_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_evidence_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE
);
CREATE INDEX graph_fact_evidence_note_idx ON graph_fact_evidence (tenant_id, note_id);
CREATE TABLE graph_fact_mentions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    fact_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT graph_fact_mentions_pkey PRIMARY KEY (tenant_id, fact_id, entity_id),
    CONSTRAINT graph_fact_mentions_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_mentions_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX graph_fact_mentions_entity_idx ON graph_fact_mentions (tenant_id, entity_id, fact_id);
CREATE TABLE graph_fact_supersessions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    supersession_id uuid NOT NULL,
    from_fact_id uuid NOT NULL,
    to_fact_id uuid NOT NULL,
    note_id uuid,
    effective_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT graph_fact_supersessions_pkey PRIMARY KEY (tenant_id, supersession_id),
    CONSTRAINT graph_fact_supersessions_tenant_id_from_fact_id_fkey FOREIGN KEY (tenant_id, from_fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_supersessions_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT graph_fact_supersessions_tenant_id_to_fact_id_fkey FOREIGN KEY (tenant_id, to_fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX graph_fact_supersessions_link_key
    ON graph_fact_supersessions (tenant_id, from_fact_id, to_fact_id, note_id) NULLS NOT DISTINCT;
CREATE INDEX graph_fact_supersessions_note_idx ON graph_fact_supersessions (tenant_id, note_id)
    WHERE note_id IS NOT NULL;
CREATE INDEX graph_fact_supersessions_to_idx ON graph_fact_supersessions (tenant_id, to_fact_id);
CREATE TABLE fact_closings (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    closing_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    previous_valid_to timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT fact_closings_pkey PRIMARY KEY (tenant_id, closing_id),
    CONSTRAINT fact_closings_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX fact_closings_fact_idx ON fact_closings (tenant_id, fact_id, recorded_at);
CREATE TABLE fact_confidences (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    change_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    recorded_at timestamptz NOT NULL,
    previous_confidence double precision NOT NULL,
    previous_mentions integer NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT fact_confidences_pkey PRIMARY KEY (tenant_id, change_id),
    CONSTRAINT fact_confidences_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE
);
CREATE INDEX fact_confidences_fact_idx ON fact_confidences (tenant_id, fact_id, recorded_at);
CREATE TABLE fact_conflicts (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    conflict_id uuid NOT NULL,
    fact_a uuid NOT NULL,
    fact_b uuid NOT NULL,
    status text DEFAULT 'open' NOT NULL,
    resolved_by text,
    resolution_note text,
    detected_at timestamptz NOT NULL,
    resolved_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    winner uuid,
    CONSTRAINT fact_conflicts_pair_key UNIQUE (tenant_id, fact_a, fact_b),
    CONSTRAINT fact_conflicts_pkey PRIMARY KEY (tenant_id, conflict_id),
    CONSTRAINT fact_conflicts_tenant_id_fact_a_fkey FOREIGN KEY (tenant_id, fact_a)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_conflicts_tenant_id_fact_b_fkey FOREIGN KEY (tenant_id, fact_b)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_conflicts_status_check CHECK (status IN ('open', 'resolved'))
);
COMMENT ON COLUMN fact_conflicts.fact_a IS 'the one that was there';
COMMENT ON COLUMN fact_conflicts.fact_b IS 'the one that came to it';
CREATE INDEX fact_conflicts_list_idx ON fact_conflicts (tenant_id, project_id, detected_at, conflict_id);
CREATE INDEX fact_conflicts_other_idx ON fact_conflicts (tenant_id, fact_b);
CREATE TABLE fact_derivations (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    fact_id uuid NOT NULL,
    source_hash bytea NOT NULL,
    created_at timestamptz NOT NULL,
    kind text DEFAULT 'derived' NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT fact_derivations_pkey PRIMARY KEY (tenant_id, fact_id, source_hash, kind),
    CONSTRAINT fact_derivations_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_derivations_kind_check CHECK (kind IN ('derived', 'resolves'))
);
CREATE INDEX fact_derivations_source_idx ON fact_derivations (tenant_id, source_hash);
CREATE TABLE fact_retractions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    retraction_id uuid NOT NULL,
    fact_id uuid NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    kind text NOT NULL,
    reason text,
    retracted_by text NOT NULL,
    confidence_before double precision NOT NULL,
    retracted_at timestamptz NOT NULL,
    CONSTRAINT fact_retractions_pkey PRIMARY KEY (tenant_id, retraction_id),
    CONSTRAINT fact_retractions_tenant_id_fact_id_fkey FOREIGN KEY (tenant_id, fact_id)
        REFERENCES graph_facts(tenant_id, fact_id) ON DELETE CASCADE,
    CONSTRAINT fact_retractions_kind_check
        CHECK (kind IN ('retracted', 'corrected', 'merged', 'decayed', 'resolved'))
);
COMMENT ON COLUMN fact_retractions.agent_id IS 'the fact''s agent, so that its policy holds here too';
CREATE INDEX fact_retractions_fact_idx ON fact_retractions (tenant_id, fact_id);
CREATE TABLE sources (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    source_id uuid NOT NULL,
    source text NOT NULL COLLATE "C",
    identity text NOT NULL,
    authority text NOT NULL,
    agents text[] NOT NULL,
    blocklisted boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    CONSTRAINT sources_pkey PRIMARY KEY (tenant_id, source_id),
    CONSTRAINT sources_source_key UNIQUE (tenant_id, project_id, source),
    CONSTRAINT sources_authority_check
        CHECK (authority IN ('write_token', 'admin', 'same_authority', 'federated', 'other')),
    CONSTRAINT sources_identity_check
        CHECK (identity IN ('signed_manifest', 'manifest', 'capability_token', 'local_key', 'syntactic', 'none'))
);
COMMENT ON COLUMN sources.agents IS 'who may speak for it; nobody named: everybody';
CREATE TABLE decay_policies (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    policy_id uuid NOT NULL,
    relation text NOT NULL COLLATE "C",
    scope text NOT NULL,
    mode text NOT NULL,
    ttl_s double precision,
    half_life_s double precision,
    min_confidence double precision NOT NULL,
    exempt_relations text[] NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    swept_at timestamptz,
    CONSTRAINT decay_policies_pkey PRIMARY KEY (tenant_id, policy_id),
    CONSTRAINT decay_policies_place_key UNIQUE (tenant_id, project_id, relation, scope),
    CONSTRAINT decay_policies_min_confidence_check CHECK (min_confidence >= 0 AND min_confidence <= 1),
    CONSTRAINT decay_policies_mode_check CHECK (mode IN ('retract', 'confidence', 'dry_run')),
    CONSTRAINT decay_policies_scope_check
        CHECK (scope = '*' OR scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
COMMENT ON COLUMN decay_policies.relation IS 'a predicate''s name as it is compared, or *';
CREATE TABLE note_entity_mentions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    note_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    by_name boolean DEFAULT false NOT NULL,
    CONSTRAINT note_entity_mentions_pkey PRIMARY KEY (tenant_id, note_id, entity_id),
    CONSTRAINT note_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE,
    CONSTRAINT note_entity_mentions_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE
);
COMMENT ON COLUMN note_entity_mentions.by_name IS 'found in its words for a tombstone, and gone with it';
CREATE INDEX note_entity_mentions_entity_idx ON note_entity_mentions (tenant_id, entity_id, note_id);
"""

DOCUMENTS = """
CREATE TABLE documents (
    tenant_id text NOT NULL,
    document_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    owner_key text NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    source_type text NOT NULL,
    source_url text,
    title text,
    tags text[] NOT NULL,
    author text,
    occurred_at timestamptz NOT NULL,
    raw_content bytea,
    content_type text,
    content_bytes bigint,
    content_hash text,
    status text DEFAULT 'queued' NOT NULL,
    error text,
    chunks_total integer,
    chunks_done integer DEFAULT 0 NOT NULL,
    notes_created integer DEFAULT 0 NOT NULL,
    notes_deduplicated integer DEFAULT 0 NOT NULL,
    job_id uuid,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    completed_at timestamptz,
    deleted_at timestamptz,
    CONSTRAINT documents_pkey PRIMARY KEY (tenant_id, document_id),
    CONSTRAINT documents_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT documents_source_type_check CHECK (source_type IN ('text', 'markdown', 'html', 'pdf', 'url')),
    CONSTRAINT documents_status_check
        CHECK (status IN ('queued', 'extracting', 'chunking', 'embedding', 'indexing', 'done', 'failed'))
);
COMMENT ON COLUMN documents.owner_key IS 'the agent under agent_private, else the garden, else nothing';
COMMENT ON COLUMN documents.raw_content IS 'as it came, until it is done: then its chunks hold what it says';
CREATE INDEX documents_hash_idx ON documents (tenant_id, project_id, content_hash)
    WHERE deleted_at IS NULL AND content_hash IS NOT NULL;
CREATE INDEX documents_list_idx ON documents (tenant_id, project_id, created_at, document_id);
CREATE TABLE document_notes (
    tenant_id text NOT NULL,
    document_id uuid NOT NULL,
    chunk_index integer NOT NULL,
    note_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    owned boolean NOT NULL,
    CONSTRAINT document_notes_pkey PRIMARY KEY (tenant_id, document_id, chunk_index),
    CONSTRAINT document_notes_tenant_id_document_id_fkey FOREIGN KEY (tenant_id, document_id)
        REFERENCES documents(tenant_id, document_id) ON DELETE CASCADE,
    CONSTRAINT document_notes_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT document_notes_scope_check
        CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
COMMENT ON COLUMN document_notes.owned IS 'made for this document, and deleted with it';
CREATE INDEX document_notes_note_idx ON document_notes (tenant_id, note_id);
CREATE TABLE document_entity_mentions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    document_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT document_entity_mentions_pkey PRIMARY KEY (tenant_id, document_id, entity_id),
    CONSTRAINT document_entity_mentions_tenant_id_document_id_fkey FOREIGN KEY (tenant_id, document_id)
        REFERENCES documents(tenant_id, document_id) ON DELETE CASCADE,
    CONSTRAINT document_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX document_entity_mentions_entity_idx ON document_entity_mentions (tenant_id, entity_id, document_id);
"""

ERASURE = """
CREATE TABLE tombstones (
    tenant_id text NOT NULL,
    tombstone_id uuid NOT NULL,
    project_id text NOT NULL,
    entity_id uuid NOT NULL,
    entity text,
    scopes text[],
    reason text NOT NULL,
    created_by text NOT NULL,
    key_id text NOT NULL,
    created_at timestamptz NOT NULL,
    legal_hold boolean NOT NULL,
    erase boolean NOT NULL,
    erase_at timestamptz,
    erased_at timestamptz,
    named boolean NOT NULL,
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
    tenant_id text NOT NULL,
    revocation_id uuid NOT NULL,
    project_id text NOT NULL,
    tombstone_id uuid NOT NULL,
    reason text NOT NULL,
    revoked_by text NOT NULL,
    key_id text NOT NULL,
    revoked_at timestamptz NOT NULL,
    CONSTRAINT tombstone_revocations_pkey PRIMARY KEY (tenant_id, revocation_id),
    CONSTRAINT tombstone_revocations_tombstone_key UNIQUE (tenant_id, tombstone_id),
    CONSTRAINT tombstone_revocations_tenant_id_tombstone_id_fkey FOREIGN KEY (tenant_id, tombstone_id)
        REFERENCES tombstones(tenant_id, tombstone_id)
);
CREATE TABLE erasure_receipts (
    tenant_id text NOT NULL,
    receipt_id uuid NOT NULL,
    project_id text NOT NULL,
    tombstone_id uuid NOT NULL,
    signed text NOT NULL,
    signature bytea NOT NULL,
    public_key bytea NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT erasure_receipts_pkey PRIMARY KEY (tenant_id, receipt_id),
    CONSTRAINT erasure_receipts_tombstone_key UNIQUE (tenant_id, tombstone_id),
    CONSTRAINT erasure_receipts_tenant_id_tombstone_id_fkey FOREIGN KEY (tenant_id, tombstone_id)
        REFERENCES tombstones(tenant_id, tombstone_id)
);
COMMENT ON COLUMN erasure_receipts.signed IS 'the receipt, as the very text that was signed';
"""

RETRIEVAL = """
CREATE TABLE lexical_statistics (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    kind text NOT NULL,
    documents bigint NOT NULL,
    total_length bigint NOT NULL,
    added bigint NOT NULL,
    counted_at timestamptz NOT NULL,
    CONSTRAINT lexical_statistics_pkey PRIMARY KEY (tenant_id, project_id, kind),
    CONSTRAINT lexical_statistics_kind_check CHECK (kind IN ('note', 'fact', 'object'))
);
COMMENT ON COLUMN lexical_statistics.added IS 'since they were counted';
CREATE TABLE lexical_frequencies (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    kind text NOT NULL,
    term text NOT NULL COLLATE "C",
    documents bigint NOT NULL,
    CONSTRAINT lexical_frequencies_pkey PRIMARY KEY (tenant_id, project_id, kind, term),
    CONSTRAINT lexical_frequencies_kind_check CHECK (kind IN ('note', 'fact', 'object'))
);
"""

EMBEDDINGS = """
CREATE TABLE embedding_models (
    model_id smallint NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    version integer DEFAULT 1 NOT NULL,
    dimensions integer NOT NULL,
    active boolean DEFAULT false NOT NULL,
    created_at timestamptz NOT NULL,
    activated_at timestamptz,
    CONSTRAINT embedding_models_name_key UNIQUE (provider, model, version),
    CONSTRAINT embedding_models_pkey PRIMARY KEY (model_id),
    CONSTRAINT embedding_models_dimensions_check CHECK (dimensions >= 64 AND dimensions <= 2000)
);
CREATE UNIQUE INDEX embedding_models_active_key ON embedding_models (active) WHERE active;
CREATE TABLE embeddings (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    owner_kind text NOT NULL,
    owner_id uuid NOT NULL,
    view text NOT NULL,
    model_id smallint NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    text_hash bytea NOT NULL,
    embedded_at timestamptz NOT NULL,
    vector vector NOT NULL,
    CONSTRAINT embeddings_pkey PRIMARY KEY (tenant_id, model_id, view, owner_kind, owner_id),
    CONSTRAINT embeddings_owner_kind_check CHECK (owner_kind IN ('note', 'fact', 'card', 'object')),
    CONSTRAINT embeddings_view_check CHECK (view IN ('self', 'context'))
) PARTITION BY HASH (tenant_id);
ALTER TABLE embeddings ALTER COLUMN vector SET STORAGE PLAIN;
COMMENT ON COLUMN embeddings.text_hash IS 'of the text it was made of';
CREATE INDEX embeddings_1_fact_idx ON embeddings USING hnsw ((vector::halfvec(384)) halfvec_ip_ops)
    WITH (m = 24, ef_construction = 256) WHERE (model_id = 1) AND owner_kind = 'fact';
CREATE INDEX embeddings_1_note_idx ON embeddings USING hnsw ((vector::halfvec(384)) halfvec_ip_ops)
    WITH (m = 24, ef_construction = 256) WHERE (model_id = 1) AND owner_kind = 'note';
CREATE TABLE embedding_queue (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    owner_kind text NOT NULL,
    owner_id uuid NOT NULL,
    model_id smallint NOT NULL,
    queued_at timestamptz NOT NULL,
    available_at timestamptz NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    last_error text,
    CONSTRAINT embedding_queue_pkey PRIMARY KEY (tenant_id, project_id, model_id, owner_kind, owner_id),
    CONSTRAINT embedding_queue_owner_kind_check CHECK (owner_kind IN ('note', 'fact', 'card', 'object'))
);
CREATE INDEX embedding_queue_due_idx ON embedding_queue (tenant_id, project_id, model_id, available_at, owner_id);
CREATE TABLE embedding_counts (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    model_id smallint NOT NULL,
    view text NOT NULL,
    vectors bigint NOT NULL,
    notes bigint DEFAULT 0 NOT NULL,
    facts bigint DEFAULT 0 NOT NULL,
    counted_at timestamptz NOT NULL,
    CONSTRAINT embedding_counts_pkey PRIMARY KEY (tenant_id, project_id, model_id, view),
    CONSTRAINT embedding_counts_view_check CHECK (view IN ('self', 'context'))
);
COMMENT ON COLUMN embedding_counts.notes IS 'those of them that are of notes';
COMMENT ON COLUMN embedding_counts.facts IS 'and of facts';
CREATE TABLE embedding_redactions (
    tenant_id text NOT NULL,
    pattern_id uuid NOT NULL,
    pattern text NOT NULL,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT embedding_redactions_pattern_key UNIQUE (tenant_id, pattern),
    CONSTRAINT embedding_redactions_pkey PRIMARY KEY (tenant_id, pattern_id)
);
CREATE TABLE redaction_counts (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    day date NOT NULL,
    redactions bigint NOT NULL,
    CONSTRAINT redaction_counts_pkey PRIMARY KEY (tenant_id, project_id, day)
);
"""

RECALL = """
CREATE TABLE memory_cards (
    tenant_id text NOT NULL,
    card_id uuid NOT NULL,
    project_id text NOT NULL,
    entity_id uuid NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    agent_id text NOT NULL,
    owner_key text NOT NULL,
    content text NOT NULL,
    facts integer NOT NULL,
    omitted integer NOT NULL,
    built_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT memory_cards_pkey PRIMARY KEY (tenant_id, card_id),
    CONSTRAINT memory_cards_place_key UNIQUE (tenant_id, project_id, entity_id, scope, owner_key),
    CONSTRAINT memory_cards_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE,
    CONSTRAINT memory_cards_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
COMMENT ON COLUMN memory_cards.facts IS 'how many it is made of';
COMMENT ON COLUMN memory_cards.built_at IS 'the time its facts were read at';
CREATE TABLE recall_traces (
    tenant_id text NOT NULL,
    trace_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    key_id text NOT NULL,
    request jsonb NOT NULL,
    context jsonb NOT NULL,
    results jsonb NOT NULL,
    valid_at timestamptz NOT NULL,
    as_of timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT recall_traces_pkey PRIMARY KEY (tenant_id, trace_id)
);
COMMENT ON COLUMN recall_traces.context IS 'gardens, reach, clock, channels, model, versions';
CREATE INDEX recall_traces_age_idx ON recall_traces (tenant_id, created_at);
"""

EXTRACTION = """
CREATE TABLE llm_calls (
    tenant_id text NOT NULL,
    call_id uuid NOT NULL,
    project_id text NOT NULL,
    job_id uuid,
    purpose text NOT NULL,
    model text NOT NULL,
    input_tokens integer NOT NULL,
    output_tokens integer NOT NULL,
    succeeded boolean NOT NULL,
    duration_ms integer NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT llm_calls_pkey PRIMARY KEY (tenant_id, call_id)
);
CREATE INDEX llm_calls_time_idx ON llm_calls (tenant_id, project_id, created_at);
CREATE TABLE llm_usage (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    day date NOT NULL,
    model text NOT NULL,
    calls bigint NOT NULL,
    failures bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    CONSTRAINT llm_usage_pkey PRIMARY KEY (tenant_id, project_id, day, model)
);
CREATE TABLE memory_reviews (
    tenant_id text NOT NULL,
    review_id uuid NOT NULL,
    project_id text NOT NULL,
    agent_id text NOT NULL,
    scope text NOT NULL,
    garden_id uuid,
    suppression smallint DEFAULT 0 NOT NULL,
    note_id uuid NOT NULL,
    target_note_id uuid NOT NULL,
    target_version integer NOT NULL,
    action text NOT NULL,
    content text NOT NULL,
    content_type text NOT NULL,
    confidence double precision NOT NULL,
    reason text NOT NULL,
    extraction_model text NOT NULL,
    status text DEFAULT 'pending' NOT NULL,
    decided_by text,
    decision_reason text,
    created_at timestamptz NOT NULL,
    decided_at timestamptz,
    CONSTRAINT memory_reviews_pkey PRIMARY KEY (tenant_id, review_id),
    CONSTRAINT memory_reviews_tenant_id_note_id_fkey FOREIGN KEY (tenant_id, note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_reviews_tenant_id_target_note_id_fkey FOREIGN KEY (tenant_id, target_note_id)
        REFERENCES memory_notes(tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_reviews_action_check CHECK (action IN ('update', 'delete')),
    CONSTRAINT memory_reviews_scope_check
        CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT memory_reviews_status_check CHECK (status IN ('pending', 'approved', 'rejected'))
);
COMMENT ON COLUMN memory_reviews.note_id IS 'the note the proposal comes from';
CREATE INDEX memory_reviews_list_idx ON memory_reviews (tenant_id, project_id, created_at, review_id);
CREATE INDEX memory_reviews_note_idx ON memory_reviews (tenant_id, note_id);
CREATE INDEX memory_reviews_target_idx ON memory_reviews (tenant_id, target_note_id);
CREATE TABLE repairs (
    tenant_id text NOT NULL,
    repair_id uuid NOT NULL,
    project_id text NOT NULL,
    action text NOT NULL,
    success boolean NOT NULL,
    affected integer NOT NULL,
    message text NOT NULL,
    requested_by text NOT NULL,
    score_before double precision,
    score_after double precision,
    created_at timestamptz NOT NULL,
    CONSTRAINT repairs_pkey PRIMARY KEY (tenant_id, repair_id)
);
COMMENT ON COLUMN repairs.requested_by IS 'the id of a key, or maintenance';
CREATE INDEX repairs_action_idx ON repairs (tenant_id, project_id, action, created_at);
"""

OBJECTS = """
CREATE TABLE object_type_schemas (
    tenant_id text NOT NULL,
    type text NOT NULL COLLATE "C",
    version integer NOT NULL,
    status text NOT NULL,
    description text,
    json_schema jsonb,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    embedding_policy text DEFAULT 'optional' NOT NULL,
    embedding_relevant_paths text[],
    fts_enabled boolean DEFAULT true NOT NULL,
    CONSTRAINT object_type_schemas_pkey PRIMARY KEY (tenant_id, type, version),
    CONSTRAINT object_type_schemas_embedding_policy_check
        CHECK (embedding_policy IN ('required', 'optional', 'disabled')),
    CONSTRAINT object_type_schemas_status_check CHECK (status IN ('active', 'retired'))
);
COMMENT ON COLUMN object_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN object_type_schemas.embedding_relevant_paths IS 'JSON Pointers; NULL: all properties';
CREATE UNIQUE INDEX object_type_schemas_active_key ON object_type_schemas (tenant_id, type) WHERE status = 'active';
CREATE TABLE relationship_type_schemas (
    tenant_id text NOT NULL,
    type text NOT NULL COLLATE "C",
    version integer NOT NULL,
    status text NOT NULL,
    description text,
    json_schema jsonb,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    allowed_src_types text[] NOT NULL,
    allowed_dst_types text[] NOT NULL,
    multiplicity_src text NOT NULL,
    multiplicity_dst text NOT NULL,
    base_weight double precision,
    allow_neighbor boolean DEFAULT true NOT NULL,
    max_depth_allowed integer,
    reciprocal_boost double precision,
    CONSTRAINT relationship_type_schemas_pkey PRIMARY KEY (tenant_id, type, version),
    CONSTRAINT relationship_type_schemas_multiplicity_dst_check CHECK (multiplicity_dst IN ('one', 'many')),
    CONSTRAINT relationship_type_schemas_multiplicity_src_check CHECK (multiplicity_src IN ('one', 'many')),
    CONSTRAINT relationship_type_schemas_status_check CHECK (status IN ('active', 'retired'))
);
COMMENT ON COLUMN relationship_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN relationship_type_schemas.allowed_src_types IS 'none named: any';
COMMENT ON COLUMN relationship_type_schemas.multiplicity_src IS 'one: at most one from an object';
COMMENT ON COLUMN relationship_type_schemas.multiplicity_dst IS 'one: at most one to an object';
CREATE UNIQUE INDEX relationship_type_schemas_active_key ON relationship_type_schemas (tenant_id, type)
    WHERE status = 'active';
CREATE TABLE global_object_type_schemas (
    type text NOT NULL COLLATE "C",
    version integer NOT NULL,
    status text NOT NULL,
    description text,
    json_schema jsonb,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    embedding_policy text DEFAULT 'optional' NOT NULL,
    embedding_relevant_paths text[],
    fts_enabled boolean DEFAULT true NOT NULL,
    CONSTRAINT global_object_type_schemas_pkey PRIMARY KEY (type, version),
    CONSTRAINT global_object_type_schemas_embedding_policy_check
        CHECK (embedding_policy IN ('required', 'optional', 'disabled')),
    CONSTRAINT global_object_type_schemas_status_check CHECK (status IN ('active', 'retired'))
);
COMMENT ON COLUMN global_object_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN global_object_type_schemas.embedding_relevant_paths IS 'JSON Pointers; NULL: all properties';
CREATE UNIQUE INDEX global_object_type_schemas_active_key ON global_object_type_schemas (type)
    WHERE status = 'active';
CREATE TABLE global_relationship_type_schemas (
    type text NOT NULL COLLATE "C",
    version integer NOT NULL,
    status text NOT NULL,
    description text,
    json_schema jsonb,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    allowed_src_types text[] NOT NULL,
    allowed_dst_types text[] NOT NULL,
    multiplicity_src text NOT NULL,
    multiplicity_dst text NOT NULL,
    base_weight double precision,
    allow_neighbor boolean DEFAULT true NOT NULL,
    max_depth_allowed integer,
    reciprocal_boost double precision,
    CONSTRAINT global_relationship_type_schemas_pkey PRIMARY KEY (type, version),
    CONSTRAINT global_relationship_type_schemas_multiplicity_dst_check CHECK (multiplicity_dst IN ('one', 'many')),
    CONSTRAINT global_relationship_type_schemas_multiplicity_src_check CHECK (multiplicity_src IN ('one', 'many')),
    CONSTRAINT global_relationship_type_schemas_status_check CHECK (status IN ('active', 'retired'))
);
COMMENT ON COLUMN global_relationship_type_schemas.json_schema IS 'NULL: any properties';
COMMENT ON COLUMN global_relationship_type_schemas.allowed_src_types IS 'none named: any';
COMMENT ON COLUMN global_relationship_type_schemas.multiplicity_src IS 'one: at most one from an object';
COMMENT ON COLUMN global_relationship_type_schemas.multiplicity_dst IS 'one: at most one to an object';
CREATE UNIQUE INDEX global_relationship_type_schemas_active_key ON global_relationship_type_schemas (type)
    WHERE status = 'active';
CREATE TABLE graph_objects (
    tenant_id text NOT NULL,
    branch_id uuid NOT NULL,
    canonical_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    project_id text,
    type text NOT NULL COLLATE "C",
    subtype text,
    key text COLLATE "C",
    title text,
    status text,
    labels text[] NOT NULL,
    effective_from timestamptz,
    effective_to timestamptz,
    properties jsonb NOT NULL,
    evidence jsonb,
    content_hash bytea NOT NULL,
    schema_version integer,
    deleted_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    terms tsvector DEFAULT '' NOT NULL,
    terms_length integer GENERATED ALWAYS AS (count_terms(terms)) STORED,
    embed_text text,
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
CREATE INDEX graph_objects_terms_idx
    ON graph_objects USING gin (lexical_keys(tenant_id, coalesce(project_id, ''), tsvector_to_array(terms)))
    WITH (fastupdate = off);
CREATE TABLE graph_object_versions (
    tenant_id text NOT NULL,
    branch_id uuid NOT NULL,
    canonical_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    project_id text,
    type text NOT NULL COLLATE "C",
    subtype text,
    key text COLLATE "C",
    title text,
    status text,
    labels text[] NOT NULL,
    effective_from timestamptz,
    effective_to timestamptz,
    properties jsonb NOT NULL,
    evidence jsonb,
    content_hash bytea NOT NULL,
    schema_version integer,
    deleted_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    supersedes_id uuid,
    change_summary jsonb,
    written_by text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT graph_object_versions_number_key UNIQUE (tenant_id, canonical_id, branch_id, version),
    CONSTRAINT graph_object_versions_pkey PRIMARY KEY (tenant_id, version_id)
);
COMMENT ON COLUMN graph_object_versions.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_object_versions.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_object_versions.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_object_versions.change_summary IS 'what changed since the version before';
COMMENT ON COLUMN graph_object_versions.written_by IS 'the agent';
CREATE TABLE graph_relationships (
    tenant_id text NOT NULL,
    branch_id uuid NOT NULL,
    canonical_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    project_id text,
    type text NOT NULL COLLATE "C",
    src_id uuid NOT NULL,
    dst_id uuid NOT NULL,
    weight double precision,
    role_src text,
    role_dst text,
    valid_from timestamptz,
    valid_to timestamptz,
    properties jsonb NOT NULL,
    evidence jsonb,
    content_hash bytea NOT NULL,
    schema_version integer,
    deleted_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    one_src boolean NOT NULL,
    one_dst boolean NOT NULL,
    deleted_with uuid,
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
CREATE INDEX graph_relationships_in_idx
    ON graph_relationships (tenant_id, branch_id, dst_id, weight DESC NULLS LAST, canonical_id DESC)
    INCLUDE (src_id, type, valid_from, valid_to, project_id, suppression)
    WHERE deleted_at IS NULL;
CREATE INDEX graph_relationships_list_idx ON graph_relationships (tenant_id, branch_id, type, canonical_id);
CREATE UNIQUE INDEX graph_relationships_one_dst_key ON graph_relationships (tenant_id, branch_id, type, dst_id)
    WHERE one_dst AND deleted_at IS NULL AND suppression = 0;
CREATE UNIQUE INDEX graph_relationships_one_src_key ON graph_relationships (tenant_id, branch_id, type, src_id)
    WHERE one_src AND deleted_at IS NULL AND suppression = 0;
CREATE INDEX graph_relationships_out_idx
    ON graph_relationships (tenant_id, branch_id, src_id, weight DESC NULLS LAST, canonical_id DESC)
    INCLUDE (dst_id, type, valid_from, valid_to, project_id, suppression)
    WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX graph_relationships_triple_key
    ON graph_relationships (tenant_id, branch_id, src_id, type, dst_id)
    WHERE deleted_at IS NULL AND suppression = 0;
CREATE TABLE graph_relationship_versions (
    tenant_id text NOT NULL,
    branch_id uuid NOT NULL,
    canonical_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    project_id text,
    type text NOT NULL COLLATE "C",
    src_id uuid NOT NULL,
    dst_id uuid NOT NULL,
    weight double precision,
    role_src text,
    role_dst text,
    valid_from timestamptz,
    valid_to timestamptz,
    properties jsonb NOT NULL,
    evidence jsonb,
    content_hash bytea NOT NULL,
    schema_version integer,
    deleted_at timestamptz,
    suppression smallint DEFAULT 0 NOT NULL,
    supersedes_id uuid,
    change_summary jsonb,
    written_by text NOT NULL,
    created_at timestamptz NOT NULL,
    CONSTRAINT graph_relationship_versions_number_key UNIQUE (tenant_id, canonical_id, branch_id, version),
    CONSTRAINT graph_relationship_versions_pkey PRIMARY KEY (tenant_id, version_id)
);
COMMENT ON COLUMN graph_relationship_versions.canonical_id IS 'the id of its first version, carried along';
COMMENT ON COLUMN graph_relationship_versions.project_id IS 'NULL: of every project of the tenant';
COMMENT ON COLUMN graph_relationship_versions.src_id IS 'canonical, so that it survives new versions';
COMMENT
    ON COLUMN graph_relationship_versions.schema_version IS 'of its type, by which it was checked; NULL: by none';
COMMENT ON COLUMN graph_relationship_versions.change_summary IS 'what changed since the version before';
COMMENT ON COLUMN graph_relationship_versions.written_by IS 'the agent';
CREATE TABLE object_entity_mentions (
    tenant_id text NOT NULL,
    project_id text NOT NULL,
    canonical_id uuid NOT NULL,
    entity_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    suppression smallint DEFAULT 0 NOT NULL,
    CONSTRAINT object_entity_mentions_pkey PRIMARY KEY (tenant_id, canonical_id, entity_id),
    CONSTRAINT object_entity_mentions_tenant_id_entity_id_fkey FOREIGN KEY (tenant_id, entity_id)
        REFERENCES graph_entities(tenant_id, entity_id) ON DELETE CASCADE
);
CREATE INDEX object_entity_mentions_entity_idx ON object_entity_mentions (tenant_id, entity_id, canonical_id);
"""

SEEDS = """
INSERT INTO service_secrets (name, secret)
SELECT name, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8'))
FROM unnest('{cursor,signing}'::text[]) AS name;
INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at, activated_at)
VALUES (1, 'local', 'all-MiniLM-L6-v2', 1, 384, true, now(), now());
"""

TABLES = (
    TENANCY,
    WEB,
    JOBS,
    AUDIT,
    NOTES,
    FACTS,
    DOCUMENTS,
    ERASURE,
    RETRIEVAL,
    EMBEDDINGS,
    RECALL,
    EXTRACTION,
    OBJECTS,
)

# Of each tenant table: which rows the service sees, and what it may do with them.
RULES = {
    "tenants": (Rule.TENANT, "SELECT, INSERT, UPDATE"),
    "projects": (Rule.REACH, "SELECT, INSERT, UPDATE"),
    "api_keys": (Rule.REACH, "SELECT, INSERT, UPDATE"),
    "gardens": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "garden_members": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "branches": (Rule.VOCABULARY, "SELECT, INSERT"),
    "idempotency_keys": (Rule.TENANT, "SELECT, INSERT, UPDATE, DELETE"),
    "rate_windows": (Rule.TENANT, "SELECT, INSERT, UPDATE, DELETE"),
    "jobs": (Rule.REACH, "SELECT, INSERT, UPDATE, DELETE"),
    "audit_log": (Rule.REACH, "SELECT"),
    "audit_chains": (Rule.TENANT, "SELECT"),
    "memory_notes": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "memory_history": (Rule.MEMORY, "SELECT, INSERT"),
    "graph_entities": (Rule.NAMES, "SELECT"),
    "graph_entity_aliases": (Rule.NAMES, "SELECT"),
    "graph_predicates": (Rule.VOCABULARY, "SELECT, INSERT"),
    "graph_predicate_aliases": (Rule.VOCABULARY, "SELECT, INSERT"),
    "graph_facts": (Rule.MEMORY, "SELECT"),
    "entity_edges": (Rule.MEMORY, "SELECT"),
    "graph_fact_evidence": (Rule.NAMES, "SELECT"),
    "graph_fact_mentions": (Rule.NAMES, "SELECT"),
    "graph_fact_supersessions": (Rule.NAMES, "SELECT"),
    "fact_closings": (Rule.NAMES, "SELECT"),
    "fact_confidences": (Rule.NAMES, "SELECT"),
    "fact_conflicts": (Rule.NAMES, "SELECT"),
    "fact_derivations": (Rule.NAMES, "SELECT"),
    "fact_retractions": (Rule.MEMORY, "SELECT"),
    "sources": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "decay_policies": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "note_entity_mentions": (Rule.NAMES, "SELECT"),
    "documents": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "document_notes": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "document_entity_mentions": (Rule.NAMES, "SELECT"),
    "tombstones": (Rule.CUSTODY, "SELECT"),
    "tombstone_revocations": (Rule.CUSTODY, "SELECT"),
    "erasure_receipts": (Rule.CUSTODY, "SELECT"),
    "lexical_statistics": (Rule.PROJECT, "SELECT"),
    "lexical_frequencies": (Rule.PROJECT, "SELECT"),
    "embeddings": (Rule.MEMORY, "SELECT"),
    "embedding_queue": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "embedding_counts": (Rule.PROJECT, "SELECT"),
    "embedding_redactions": (Rule.TENANT, "SELECT, INSERT, DELETE"),
    "redaction_counts": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "memory_cards": (Rule.MEMORY, "SELECT"),
    "recall_traces": (Rule.JOURNAL, "SELECT, DELETE"),
    "llm_calls": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
    "llm_usage": (Rule.REACH, "SELECT, INSERT, UPDATE"),
    "memory_reviews": (Rule.MEMORY, "SELECT, INSERT, UPDATE"),
    "repairs": (Rule.PROJECT, "SELECT, INSERT, DELETE"),
    "object_type_schemas": (Rule.TENANT, "SELECT, INSERT, UPDATE"),
    "relationship_type_schemas": (Rule.TENANT, "SELECT, INSERT, UPDATE"),
    "graph_objects": (Rule.OBJECTS, "SELECT, INSERT, UPDATE"),
    "graph_object_versions": (Rule.OBJECTS, "SELECT, INSERT"),
    "graph_relationships": (Rule.OBJECTS, "SELECT, INSERT, UPDATE"),
    "graph_relationship_versions": (Rule.OBJECTS, "SELECT, INSERT"),
    "object_entity_mentions": (Rule.NAMES, "SELECT"),
}

# Tables without a tenant.
GRANTS = {
    "alembic_version": "SELECT",
    "service_secrets": "SELECT",
    "global_predicates": "SELECT",
    "global_predicate_aliases": "SELECT",
    "embedding_models": "SELECT",
    "global_object_type_schemas": "SELECT",
    "global_relationship_type_schemas": "SELECT",
}


def create(execute: Callable[[str], object]) -> None:
    """Create everything; also runs in a scratch schema, to compare an existing database with it."""
    execute(TYPES)
    for function in SCHEMA_FUNCTIONS.values():
        execute(function)
    for tables in TABLES:
        execute(tables)
    for number in range(PARTITIONS):
        part = f"embeddings_{number}"
        execute(
            f"CREATE TABLE {part} PARTITION OF embeddings FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
        )
        # Only reached through the parent table, which has the policies.
        execute(f"ALTER TABLE {part} ENABLE ROW LEVEL SECURITY")
        execute(f"ALTER TABLE {part} FORCE ROW LEVEL SECURITY")
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(execute, table, rule=rule, grants=grants)
    for table, grants in GRANTS.items():
        execute(f"GRANT {grants} ON {table} TO {APP_ROLE}")
    execute(SEEDS)


def upgrade() -> None:
    create(execute_literal)


def downgrade() -> None:
    remove_functions(op.get_bind())
    others = [name for name in GRANTS if name != "alembic_version"]
    op.execute(f"DROP TABLE {', '.join([*RULES, *others, 'platform_keys'])}")
    for name in SCHEMA_FUNCTIONS:
        op.execute(f"DROP FUNCTION {name}")
    op.execute("DROP TYPE fact_draft, fact_step")
    op.execute(f"REVOKE ALL ON alembic_version FROM {APP_ROLE}")
