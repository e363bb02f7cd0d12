"""Recall: terms, vectors and their queue, cards, traces, and edges laid out for walking."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

PARTITIONS = 8
# What columns and indexes are computed with.
EARLY_FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION count_terms(p_terms tsvector)
RETURNS int
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN coalesce((SELECT sum(cardinality(t.positions)) FROM unnest(p_terms) t), 0);
END
$$;
""",
    """
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
    """
CREATE OR REPLACE FUNCTION project_language(p_tenant text, p_project text)
RETURNS regconfig
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN coalesce((
        SELECT p.settings ->> 'language' FROM projects p
        WHERE p.tenant_id = p_tenant AND p.project_id = p_project), 'english')::regconfig;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION note_terms(
    p_tenant text, p_project text, p_author text, p_occurred_at timestamptz, p_tags text[], p_content text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(project_language(p_tenant, p_project), concat_ws(' ',
        p_author, to_char(p_occurred_at AT TIME ZONE 'UTC', 'FMDD FMMonth YYYY'), array_to_string(p_tags, ' '),
        p_content));
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION count_telling(p_tenant text, p_project text, p_content text)
RETURNS int
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN length(to_tsvector(project_language(p_tenant, p_project),
                              regexp_replace(p_content, '[^.!?\n]+[.!]*\?+', ' ', 'g')));
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION fact_terms(p_language regconfig, p_subject text, p_predicate text, p_object text)
RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN to_tsvector(p_language, concat_ws(' ',
        regexp_replace(regexp_replace(
            p_subject || ' ' || p_predicate, '([a-z])([A-Z])', '\1 \2', 'g'), '[_:/.-]+', ' ', 'g'),
        left(p_object, 20000)));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION last_segment(p_name text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN CASE WHEN p_name ~ '^[A-Za-z][A-Za-z0-9+.-]*:[^ ]+$'
        THEN coalesce(nullif(regexp_replace(rtrim(p_name, '/'), '^.*[/:]', ''), ''), p_name) ELSE p_name END;
END
$$;
""",
)

TABLES = """
ALTER TABLE memory_notes
    ADD COLUMN terms TSVECTOR DEFAULT '' NOT NULL,
    ADD COLUMN terms_length INTEGER GENERATED ALWAYS AS (count_terms(terms)) STORED,
    ADD COLUMN telling INTEGER DEFAULT 0 NOT NULL;
COMMENT ON COLUMN memory_notes.telling IS 'how many terms it has outside of questions';
ALTER TABLE memory_notes ALTER COLUMN terms SET STORAGE MAIN;
ALTER TABLE graph_facts
    ADD COLUMN terms TSVECTOR DEFAULT '' NOT NULL,
    ADD COLUMN terms_length INTEGER GENERATED ALWAYS AS (count_terms(terms)) STORED;
CREATE TABLE embedding_models (
    model_id SMALLINT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    version INTEGER DEFAULT 1 NOT NULL,
    dimensions INTEGER NOT NULL,
    active BOOLEAN DEFAULT false NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    activated_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT embedding_models_pkey PRIMARY KEY (model_id),
    CONSTRAINT embedding_models_name_key UNIQUE (provider, model, version),
    CONSTRAINT embedding_models_dimensions_check CHECK (dimensions >= 64 AND dimensions <= 2000)
);
CREATE UNIQUE INDEX embedding_models_active_key ON embedding_models (active) WHERE active;
CREATE TABLE embeddings (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_id UUID NOT NULL,
    view TEXT NOT NULL,
    model_id SMALLINT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    text_hash BYTEA NOT NULL,
    embedded_at TIMESTAMP WITH TIME ZONE NOT NULL,
    vector VECTOR NOT NULL,
    CONSTRAINT embeddings_pkey PRIMARY KEY (tenant_id, model_id, view, owner_kind, owner_id),
    CONSTRAINT embeddings_owner_kind_check CHECK (owner_kind IN ('note', 'fact', 'card', 'object')),
    CONSTRAINT embeddings_view_check CHECK (view IN ('self', 'context'))
) PARTITION BY HASH (tenant_id);
COMMENT ON COLUMN embeddings.text_hash IS 'of the text it was made of';
-- Beside its row: a vector stored elsewhere is read three times as slowly.
ALTER TABLE embeddings ALTER COLUMN vector SET STORAGE PLAIN;
CREATE TABLE embedding_queue (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_id UUID NOT NULL,
    model_id SMALLINT NOT NULL,
    queued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    last_error TEXT,
    CONSTRAINT embedding_queue_pkey PRIMARY KEY (tenant_id, project_id, model_id, owner_kind, owner_id),
    CONSTRAINT embedding_queue_owner_kind_check CHECK (owner_kind IN ('note', 'fact', 'card', 'object'))
);
CREATE INDEX embedding_queue_due_idx ON embedding_queue (tenant_id, project_id, model_id, available_at, owner_id);
CREATE TABLE embedding_counts (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    model_id SMALLINT NOT NULL,
    view TEXT NOT NULL,
    vectors BIGINT NOT NULL,
    notes BIGINT DEFAULT 0 NOT NULL,
    facts BIGINT DEFAULT 0 NOT NULL,
    counted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT embedding_counts_pkey PRIMARY KEY (tenant_id, project_id, model_id, view),
    CONSTRAINT embedding_counts_view_check CHECK (view IN ('self', 'context'))
);
COMMENT ON COLUMN embedding_counts.notes IS 'those of them that are of notes';
COMMENT ON COLUMN embedding_counts.facts IS 'and of facts';
CREATE TABLE embedding_redactions (
    tenant_id TEXT NOT NULL,
    pattern_id UUID NOT NULL,
    pattern TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT embedding_redactions_pkey PRIMARY KEY (tenant_id, pattern_id),
    CONSTRAINT embedding_redactions_pattern_key UNIQUE (tenant_id, pattern)
);
CREATE TABLE redaction_counts (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    day DATE NOT NULL,
    redactions BIGINT NOT NULL,
    CONSTRAINT redaction_counts_pkey PRIMARY KEY (tenant_id, project_id, day)
);
CREATE TABLE lexical_statistics (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    documents BIGINT NOT NULL,
    total_length BIGINT NOT NULL,
    added BIGINT NOT NULL,
    counted_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT lexical_statistics_pkey PRIMARY KEY (tenant_id, project_id, kind),
    CONSTRAINT lexical_statistics_kind_check CHECK (kind IN ('note', 'fact'))
);
COMMENT ON COLUMN lexical_statistics.added IS 'since they were counted';
CREATE TABLE lexical_frequencies (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    term TEXT COLLATE "C" NOT NULL,
    documents BIGINT NOT NULL,
    CONSTRAINT lexical_frequencies_pkey PRIMARY KEY (tenant_id, project_id, kind, term),
    CONSTRAINT lexical_frequencies_kind_check CHECK (kind IN ('note', 'fact'))
);
CREATE TABLE memory_cards (
    tenant_id TEXT NOT NULL,
    card_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    entity_id UUID NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    agent_id TEXT NOT NULL,
    owner_key TEXT NOT NULL,
    content TEXT NOT NULL,
    facts INTEGER NOT NULL,
    omitted INTEGER NOT NULL,
    built_at TIMESTAMP WITH TIME ZONE NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    CONSTRAINT memory_cards_pkey PRIMARY KEY (tenant_id, card_id),
    CONSTRAINT memory_cards_place_key UNIQUE (tenant_id, project_id, entity_id, scope, owner_key),
    CONSTRAINT memory_cards_tenant_id_entity_id_fkey FOREIGN KEY(tenant_id, entity_id)
        REFERENCES graph_entities (tenant_id, entity_id) ON DELETE CASCADE,
    CONSTRAINT memory_cards_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
COMMENT ON COLUMN memory_cards.facts IS 'how many it is made of';
COMMENT ON COLUMN memory_cards.built_at IS 'the time its facts were read at';
CREATE TABLE recall_traces (
    tenant_id TEXT NOT NULL,
    trace_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    request JSONB NOT NULL,
    context JSONB NOT NULL,
    results JSONB NOT NULL,
    valid_at TIMESTAMP WITH TIME ZONE NOT NULL,
    as_of TIMESTAMP WITH TIME ZONE NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT recall_traces_pkey PRIMARY KEY (tenant_id, trace_id)
);
COMMENT ON COLUMN recall_traces.context IS 'gardens, reach, clock, channels, model, versions';
CREATE INDEX recall_traces_age_idx ON recall_traces (tenant_id, created_at);
DROP INDEX entity_edges_out_idx;
DROP INDEX entity_edges_in_idx;
CREATE INDEX entity_edges_out_idx ON entity_edges
    (tenant_id, project_id, subject_entity_id, scope, confidence, edge_id)
    INCLUDE (object_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
             retracted_at, weighed_at, agent_id, garden_id, suppression);
CREATE INDEX entity_edges_in_idx ON entity_edges
    (tenant_id, project_id, object_entity_id, scope, confidence, edge_id)
    INCLUDE (subject_entity_id, predicate_id, source_trust, valid_from, valid_until, created_at, closed_at,
             retracted_at, weighed_at, agent_id, garden_id, suppression);
"""

RULES: dict[str, tuple[Rule, str]] = {
    "embeddings": (Rule.MEMORY, "SELECT"),
    "embedding_queue": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "embedding_counts": (Rule.PROJECT, "SELECT"),
    "embedding_redactions": (Rule.TENANT, "SELECT, INSERT, DELETE"),
    "redaction_counts": (Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    "lexical_statistics": (Rule.PROJECT, "SELECT"),
    "lexical_frequencies": (Rule.PROJECT, "SELECT"),
    "memory_cards": (Rule.MEMORY, "SELECT"),
    "recall_traces": (Rule.JOURNAL, "SELECT, DELETE"),
}

# New functions, and those that changed, as they are now.
FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION fact_stands(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT p_from <= p_valid AND (p_known IS NULL OR p_created <= p_known)
       AND (p_retracted IS NULL OR p_retracted > p_known)
       AND CASE WHEN p_closed > p_known THEN (
               SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
               WHERE c.tenant_id = p_tenant AND c.fact_id = p_fact AND c.recorded_at > p_known
               ORDER BY c.recorded_at LIMIT 1) ELSE p_until END > p_valid
$$;
""",
    """
CREATE OR REPLACE FUNCTION fact_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT coalesce(
        CASE WHEN p_weighed > p_known THEN (
            SELECT w.previous_confidence FROM fact_confidences w
            WHERE w.tenant_id = p_tenant AND w.fact_id = p_fact AND w.recorded_at > p_known
            ORDER BY w.recorded_at LIMIT 1) END,
        CASE WHEN p_retracted > p_known THEN (
            SELECT r.confidence_before FROM fact_retractions r
            WHERE r.tenant_id = p_tenant AND r.fact_id = p_fact ORDER BY r.retracted_at LIMIT 1) END,
        p_confidence)
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
CREATE OR REPLACE FUNCTION redact_text(p_text text, p_patterns text[], OUT words text, OUT redactions int)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_pattern text;
    v_found int;
BEGIN
    words := p_text;
    redactions := 0;
    FOREACH v_pattern IN ARRAY p_patterns LOOP
        v_found := regexp_count(words, v_pattern, 1, 'i');
        IF v_found > 0 THEN
            words := regexp_replace(words, v_pattern, '[REDACTED]', 'gi');
            redactions := redactions + v_found;
        END IF;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_now(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT u.entity_id, u.edge_id, u.confidence
        FROM (
            (SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
            UNION ALL
            (SELECT x.subject_entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
        ) u
        ORDER BY u.confidence DESC, u.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_then(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_known timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT t.entity_id, t.edge_id, t.confidence
        FROM (
            SELECT u.entity_id, u.edge_id,
                   coalesce(
                       CASE WHEN u.weighed_at > p_known THEN (
                           SELECT w.previous_confidence FROM fact_confidences w
                           WHERE w.tenant_id = p_tenant AND w.fact_id = u.edge_id AND w.recorded_at > p_known
                           ORDER BY w.recorded_at LIMIT 1) END,
                       CASE WHEN u.retracted_at > p_known THEN (
                           SELECT r.confidence_before FROM fact_retractions r
                           WHERE r.tenant_id = p_tenant AND r.fact_id = u.edge_id
                           ORDER BY r.retracted_at LIMIT 1) END,
                       u.confidence) AS confidence,
                   CASE WHEN u.closed_at > p_known THEN (
                       SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
                       WHERE c.tenant_id = p_tenant AND c.fact_id = u.edge_id AND c.recorded_at > p_known
                       ORDER BY c.recorded_at LIMIT 1) ELSE u.valid_until END AS ends
            FROM (
                SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
                UNION ALL
                SELECT x.subject_entity_id, x.edge_id, x.confidence, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
            ) u OFFSET 0
        ) t
        WHERE t.confidence >= p_confidence AND t.ends > p_valid
        ORDER BY t.confidence DESC, t.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION cards_telling(p_tenant text, p_project text, p_facts uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    IF coalesce(cardinality(p_facts), 0) = 0 THEN
        RETURN '{}';
    END IF;
    RETURN ARRAY(
        SELECT DISTINCT c.card_id FROM graph_facts f
        JOIN memory_cards c ON c.tenant_id = p_tenant AND c.project_id = p_project
            AND c.entity_id = f.subject_entity_id AND c.scope = f.scope AND c.owner_key = f.owner_key
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.fact_id = ANY (p_facts));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION choose_terms(p_terms text[], p_documents bigint[], p_most bigint)
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.term FROM (
            SELECT t.term, t.documents, sum(t.documents) OVER (ORDER BY t.documents, t.term) AS brings
            FROM unnest(p_terms, p_documents) t(term, documents) WHERE t.documents > 0
        ) c
        WHERE c.brings <= p_most OR c.brings = c.documents
        ORDER BY c.term);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION clear_traces(p_days int, p_limit int)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_count bigint;
BEGIN
    DELETE FROM recall_traces t WHERE t.tenant_id = v_tenant AND t.trace_id IN (
        SELECT x.trace_id FROM recall_traces x
        JOIN projects p ON p.tenant_id = v_tenant AND p.project_id = x.project_id
        WHERE x.tenant_id = v_tenant
          AND x.created_at < clock_timestamp()
              - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, p_days))
        ORDER BY x.created_at LIMIT p_limit);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION count_accesses(p_facts uuid[], p_counts int[], p_at timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
BEGIN
    PERFORM FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (p_facts) ORDER BY f.fact_id FOR NO KEY UPDATE;
    UPDATE graph_facts f SET access_count = f.access_count + c.counted, last_accessed_at = p_at
    FROM unnest(p_facts, p_counts) c(fact_id, counted)
    WHERE f.tenant_id = v_tenant AND f.fact_id = c.fact_id AND f.suppression = 0;
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
CREATE OR REPLACE FUNCTION delay_units(p_model smallint, p_units json)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    UPDATE embedding_queue q
    SET attempts = q.attempts + u.failed::int, last_error = coalesce(u.error, q.last_error), available_at = u.until
    FROM json_to_recordset(p_units) AS u(
        kind text, id uuid, queued_at timestamptz, until timestamptz, error text, failed boolean)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION derivation_depth(p_tenant text, p_fact uuid, p_most int)
RETURNS int
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE chain(fact_id, depth) AS (
            SELECT p_fact, 0
            UNION
            SELECT f.fact_id, c.depth + 1 FROM chain c
            JOIN fact_derivations d ON d.tenant_id = p_tenant AND d.fact_id = c.fact_id AND d.kind = 'derived'
            LEFT JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_hash = d.source_hash
            WHERE c.depth < p_most
        )
        SELECT max(c.depth) FROM chain c);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION drop_cards(p_tenant text, p_cards uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
BEGIN
    IF coalesce(cardinality(p_cards), 0) = 0 THEN
        RETURN;
    END IF;
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = p_tenant AND q.owner_kind = 'card' AND q.owner_id = ANY (p_cards);
    DELETE FROM embeddings x
    WHERE x.tenant_id = p_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m)
      AND x.view IN ('self', 'context') AND x.owner_kind = 'card' AND x.owner_id = ANY (p_cards);
    DELETE FROM memory_cards c WHERE c.tenant_id = p_tenant AND c.card_id = ANY (p_cards);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION embedding_metrics()
RETURNS TABLE (
    model_id smallint, model text, active boolean, vectors bigint, pending bigint, failed bigint,
    oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT m.model_id, m.provider || '/' || m.model || CASE WHEN m.version > 1 THEN ' v' || m.version ELSE '' END,
           m.active, coalesce(c.vectors, 0)::bigint, coalesce(q.pending, 0), coalesce(q.failed, 0),
           greatest(0, coalesce(extract(epoch FROM v_now - q.oldest), 0))::float8
    FROM embedding_models m
    LEFT JOIN (
        SELECT c.model_id, sum(c.vectors) AS vectors FROM embedding_counts c WHERE c.view = 'self' GROUP BY c.model_id
    ) c ON c.model_id = m.model_id
    LEFT JOIN (
        SELECT q.model_id, count(*) AS pending, count(*) FILTER (WHERE q.attempts > 0) AS failed,
               min(q.queued_at) FILTER (WHERE q.attempts = 0) AS oldest
        FROM embedding_queue q GROUP BY q.model_id
    ) q ON q.model_id = m.model_id
    ORDER BY m.model_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION expand_seeds(
    p_tenant text, p_project text, p_scopes text[], p_seeds uuid[], p_depth int, p_confidence double precision,
    p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[], p_cap int, p_most int)
RETURNS TABLE (
    scope text, entity_id uuid, hops int, edge_id uuid, confidence double precision, subject_id uuid, out_degree bigint,
    truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT s.scope, w.entity_id, w.hops, w.edge_id, w.confidence, w.truncated, x.subject_entity_id AS subject_id
        FROM unnest(coalesce(p_scopes, '{agent_private,project_shared,org_shared,public}')) s(scope)
        CROSS JOIN LATERAL walk_edges(
            p_tenant, p_project, s.scope, p_seeds, p_depth, 'both', NULL, p_confidence, p_trust, v_valid, p_known,
            p_fans, p_cap) w
        CROSS JOIN LATERAL (
            SELECT x.subject_entity_id FROM entity_edges x
            WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id OFFSET 0) x
    ), degrees AS MATERIALIZED (
        SELECT d.scope, d.subject_id, o.out_degree
        FROM (SELECT DISTINCT r.scope, r.subject_id FROM reached r) d
        CROSS JOIN LATERAL (
            SELECT count(*) AS out_degree FROM (
                SELECT FROM entity_edges x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = d.subject_id
                  AND x.scope = d.scope AND x.created_at <= coalesce(p_known, 'infinity')
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                LIMIT p_most) e) o
    )
    SELECT r.scope, r.entity_id, r.hops, r.edge_id, r.confidence, r.subject_id, d.out_degree, r.truncated
    FROM reached r JOIN degrees d ON d.scope = r.scope AND d.subject_id = r.subject_id;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION find_neighbors(
    p_tenant text, p_project text, p_entity uuid, p_name text, p_scope text, p_depth int, p_direction text,
    p_labels json, p_prefixes text[], p_confidence double precision, p_trust double precision,
    p_valid timestamptz, p_as_of timestamptz, p_pinned timestamptz, p_fans int[], p_cap int,
    p_after_hops int, p_after uuid, p_limit int)
RETURNS TABLE (
    hops int, entity_id uuid, canonical text, kind text, suppression smallint, confidence double precision,
    source_trust double precision, facts uuid[], relations text[], subjects uuid[], objects uuid[], held uuid[],
    total bigint, truncated boolean, known_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- Read after the snapshot was taken: whatever can be seen was created before.
    v_clock timestamptz := clock_timestamp();
    v_known timestamptz := coalesce(p_pinned, p_as_of);
    v_valid timestamptz := coalesce(p_valid, p_as_of, p_pinned, v_clock);
    v_roots uuid[];
    v_relations uuid[];
BEGIN
    IF p_as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, p_as_of);
    END IF;
    IF p_entity IS NOT NULL THEN
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id = p_entity);
    ELSE
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = p_name);
        IF v_roots = '{}' THEN
            v_roots := ARRAY(
                SELECT DISTINCT a.entity_id FROM graph_entity_aliases a
                WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.alias_norm = p_name);
        END IF;
    END IF;
    -- What is hidden, or was not known then, is not meant.
    v_roots := ARRAY(
        SELECT e.entity_id FROM unnest(v_roots) u(id)
        CROSS JOIN LATERAL (
            SELECT x.entity_id FROM graph_entities x
            WHERE x.tenant_id = p_tenant AND x.entity_id = u.id AND (p_as_of IS NULL OR x.created_at <= p_as_of)
            OFFSET 0) e);
    IF p_labels IS NOT NULL OR p_prefixes IS NOT NULL THEN
        v_relations := ARRAY(
            SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_labels) r
            WHERE r.predicate_id IS NOT NULL
            UNION
            SELECT p.predicate_id FROM json_to_recordset(p_labels) AS n(norm text)
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.canonical_norm = n.norm
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__')
            UNION
            SELECT p.predicate_id FROM unnest(p_prefixes) n(prefix)
            JOIN graph_predicates p ON p.tenant_id = p_tenant
                AND p.canonical_norm >= n.prefix AND p.canonical_norm < n.prefix || U&'\+10FFFF'
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__'));
    END IF;
    RETURN QUERY
    WITH walked AS MATERIALIZED (
        SELECT w.* FROM walk_edges(
            p_tenant, p_project, p_scope, v_roots, p_depth, p_direction, v_relations, p_confidence, p_trust, v_valid,
            v_known, p_fans, p_cap) w
        WHERE cardinality(v_roots) = 1
    )
    SELECT 0, e.entity_id, e.canonical, e.kind, e.suppression, NULL::double precision, NULL::double precision,
           NULL::uuid[], NULL::text[], NULL::uuid[], NULL::uuid[], NULL::uuid[],
           s.total, s.truncated, least(coalesce(p_pinned, p_as_of, v_clock), v_clock)
    FROM (SELECT count(*) AS total, coalesce(bool_or(w.truncated), false) AS truncated FROM walked w) s
    CROSS JOIN unnest(v_roots) u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = u.id OFFSET 0) e
    UNION ALL
    SELECT n.hops, e.entity_id, e.canonical, e.kind, e.suppression, n.confidence,
           p.trusts[n.hops], n.path, p.relations, p.subjects, p.objects, p.held, NULL, NULL, NULL
    FROM (
        SELECT w.* FROM walked w
        WHERE p_after IS NULL OR (w.hops, w.entity_id) > (p_after_hops, p_after)
        ORDER BY w.hops, w.entity_id LIMIT p_limit
    ) n
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = n.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT array_agg(x.subject_entity_id ORDER BY f.place) AS subjects,
               array_agg(x.object_entity_id ORDER BY f.place) AS objects,
               array_agg(x.canonical ORDER BY f.place) AS relations,
               array_agg(x.source_trust ORDER BY f.place) AS trusts,
               array_agg(x.edge_id) FILTER (WHERE x.suppression > 0) AS held
        FROM unnest(n.path) WITH ORDINALITY f(edge_id, place)
        CROSS JOIN LATERAL (
            SELECT x.*, r.canonical FROM entity_edges x
            CROSS JOIN LATERAL (
                SELECT r.canonical FROM graph_predicates r
                WHERE r.tenant_id = p_tenant AND r.predicate_id = x.predicate_id OFFSET 0) r
            WHERE x.tenant_id = p_tenant AND x.edge_id = f.edge_id OFFSET 0) x
    ) p;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_notes(
    p_tenant text, p_project text, p_sources uuid[], p_query text[], p_total bigint, p_average double precision,
    p_known timestamptz, p_scope text, p_limit int)
RETURNS TABLE (source_id uuid, note_id uuid, strength double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_source record;
    v_terms text[];
    v_known text[];
    v_counts bigint[];
BEGIN
    FOR v_source IN
        SELECT n.note_id, concat_ws(' ', n.author, n.content) AS said FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_sources) ORDER BY n.note_id
    LOOP
        v_terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, (
                SELECT string_agg(w.words[1], ' ') FROM regexp_matches(
                    left(v_source.said, 4000), '\m([[:upper:]][[:alnum:]''’-]*|\d{4})\M', 'g') w(words)))) t
            WHERE t.lexeme <> ALL (p_query)
            ORDER BY t.lexeme LIMIT 32);
        v_known := ARRAY(
            SELECT l.term FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_terms)
            ORDER BY l.term);
        -- What is not known to be frequent is rare, or was so when it was last counted.
        v_terms := ARRAY(SELECT t.term FROM unnest(v_terms) t(term) WHERE t.term <> ALL (v_known) ORDER BY t.term);
        v_counts := count_documents('note', v_terms, 401);
        v_terms := v_terms || v_known;
        v_counts := v_counts || ARRAY(
            SELECT l.documents FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_known)
            ORDER BY l.term);
        SELECT array_agg(c.term ORDER BY c.documents, c.term), array_agg(c.documents ORDER BY c.documents, c.term)
        INTO v_terms, v_counts
        FROM (SELECT t.term, t.documents FROM unnest(v_terms, v_counts) t(term, documents)
              WHERE t.documents BETWEEN 2 AND least(greatest(2, 0.05 * p_total), 400)
              ORDER BY t.documents, t.term LIMIT 5) c;
        CONTINUE WHEN v_terms IS NULL;
        RETURN QUERY
        SELECT v_source.note_id, m.note_id, m.score
        FROM match_notes(
            v_terms, ARRAY(SELECT ln(1 + (p_total - d + 0.5) / (d + 0.5)) ^ 2 FROM unnest(v_counts) d), v_terms,
            p_average, 1000, p_limit, p_known, p_scope) m
        WHERE m.note_id <> v_source.note_id;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION match_facts(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_valid timestamptz, p_known timestamptz, p_scope text)
RETURNS TABLE (fact_id uuid, score double precision)
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
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_facts f
        WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
          AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
          AND (f.suppression = 0 OR (f.suppression = 2 AND v_holds))
          AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
          AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR f.scope = p_scope)
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                          v_tenant, p_valid, p_known)
        LIMIT p_most
    )
    SELECT f.fact_id, sum(t.idf * c.tf * 1.9 / (c.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM found f
    CROSS JOIN LATERAL (
        SELECT u.lexeme, cardinality(u.positions)::double precision AS tf FROM unnest(f.terms) u) c
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = c.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION match_notes(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_known timestamptz, p_scope text)
RETURNS TABLE (note_id uuid, score double precision)
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
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT n.note_id, n.terms_length, ts_filter(setweight(n.terms, 'A', p_terms), '{a}') AS terms
        FROM memory_notes n
        WHERE lexical_keys(n.tenant_id, n.project_id, tsvector_to_array(n.terms)) && v_keys
          AND n.tenant_id IS NOT DISTINCT FROM v_tenant AND n.project_id IS NOT DISTINCT FROM v_project
          AND n.suppression = 0
          AND (n.scope <> 'agent_private' OR n.agent_id = v_agent)
          AND (n.garden_id IS NULL OR n.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR n.scope = p_scope)
          AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
          AND (p_known IS NULL OR n.created_at <= p_known)
        LIMIT p_most
    )
    SELECT f.note_id, sum(t.idf * c.tf * 1.9 / (c.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM found f
    CROSS JOIN LATERAL (
        SELECT u.lexeme, cardinality(u.positions)::double precision AS tf FROM unnest(f.terms) u) c
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = c.lexeme
    GROUP BY f.note_id ORDER BY 2 DESC, 1 LIMIT p_limit;
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
SET plan_cache_mode = force_custom_plan
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
    v_mine text := 'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND e.owner_kind = $4 '
        'AND ($5::text IS NULL OR e.scope = $5) AND e.model_id = ';
    v_found int;
BEGIN
    -- How many of this kind there are; cards are few.
    SELECT CASE WHEN p_kind = 'card' THEN 0 WHEN c.notes + c.facts = 0 THEN c.vectors
                WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
    INTO v_vectors FROM embedding_counts c
    WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    IF v_vectors > 25000 THEN
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share FROM pg_class r
        WHERE r.oid = (SELECT e.tableoid FROM embeddings e
                       WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $8) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($9::uuid[] IS NULL OR f.predicate_id = ANY ($9))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $7, $8) OFFSET 0) h';
        v_enough := ' AND h.sure >= $10 AND h.sure > 0 AND h.sure * h.source_trust >= $11';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $8'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '200', true),
                set_config('hnsw.max_scan_tuples', '40000', true);
        PERFORM set_config('enable_sort', 'off', true);
        -- Plus zero at the end: what a relaxed index answers only seems to be in order, and would not be sorted.
        RETURN QUERY EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector::vector(%1$s) <#> $1::vector(%1$s) AS distance FROM embeddings e %2$s'
            '    WHERE %3$s%4$s%5$s ORDER BY e.vector::vector(%1$s) <#> $1::vector(%1$s) LIMIT $6)'
            'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance + 0, n.owner_id',
            p_dimensions, v_holds, v_mine, p_model, v_enough)
        USING v_query, p_tenant, p_project, p_kind, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence,
              p_trust;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            RETURN;
        END IF;
        -- Nothing of what the caller may read was met: then it is little, and is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s%3$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%4$s LIMIT $6', v_holds, v_mine, p_model, v_enough)
    USING v_query, p_tenant, p_project, p_kind, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION queue_cards(p_facts uuid[])
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_count int;
BEGIN
    INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT v_tenant, make_id(), v_project, 'card_refresh', jsonb_build_object('entity_id', x.entity_id),
           x.entity_id::text, 'service', v_now, v_now
    FROM (
        SELECT DISTINCT c.entity_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (cards_telling(v_tenant, v_project, p_facts))
        ORDER BY c.entity_id
    ) x
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_card_facts(p_entity uuid, p_places json DEFAULT NULL)
RETURNS TABLE (read_at timestamptz, canonical text, kind text, aliases text[], judged boolean, facts text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_judged boolean;
    v_entity graph_entities;
    v_now timestamptz;
BEGIN
    SELECT coalesce(p.settings ->> 'trust_mode', 'off') <> 'off' INTO v_judged FROM projects p
    WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT e.* INTO v_entity FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.merged_into IS NULL
      AND e.suppression = 0
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id IN (
        SELECT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity)
    ORDER BY p.predicate_id FOR KEY SHARE;
    v_now := clock_timestamp();
    RETURN QUERY
    SELECT v_now, v_entity.canonical, v_entity.kind,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = v_tenant AND a.entity_id = p_entity AND a.suppression = 0
                 ORDER BY a.alias_norm),
           coalesce(v_judged, false), coalesce(json_agg(json_build_object(
               'fact_id', f.fact_id, 'scope', f.scope, 'owner_key', f.owner_key, 'relation', p.canonical,
               'value', CASE WHEN f.object_entity_id IS NOT NULL THEN o.canonical
                             WHEN f.value_type = 'null' THEN 'null' ELSE left(f.object_value, 1000) END,
               'confidence', f.confidence, 'source_trust', f.source_trust, 'source', f.source, 'hlc', f.hlc,
               'valid_from', to_char(f.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'since', to_char(f.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               'against', ARRAY(
                   SELECT k.fact_a FROM fact_conflicts k
                   WHERE k.tenant_id = v_tenant AND k.fact_b = f.fact_id AND k.status = 'open'
                   ORDER BY k.fact_a))), '[]')::text
    FROM graph_facts f
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity
      AND f.retracted_at IS NULL AND f.suppression = 0 AND f.valid_from <= v_now AND f.valid_until > v_now
      AND (p_places IS NULL OR EXISTS (
          SELECT FROM json_to_recordset(p_places) AS w(scope text, owner_key text)
          WHERE w.scope = f.scope AND w.owner_key = f.owner_key));
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
CREATE OR REPLACE FUNCTION recall_facts(
    p_tenant text, p_project text, p_query text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_near int, p_valid timestamptz, p_known timestamptz, p_scope text, p_entity uuid, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_depth int, p_notes uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_scopes text[] := CASE WHEN p_scope IS NOT NULL THEN ARRAY[p_scope] END;
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_lexical uuid[] := '{}';
    v_near uuid[] := '{}';
    v_related uuid[] := '{}';
    v_cards uuid[] := '{}';
    v_seeds uuid[] := '{}';
    v_walked uuid[] := '{}';
    v_graph double precision[] := '{}';
    v_hops int[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'fact', p_query, 64) w;
    -- What stands nowhere any more may have stood somewhere then.
    v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
        SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
        ORDER BY d.place) END;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    IF p_entity IS NOT NULL THEN
        v_lexical := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
              AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
              AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
              AND (p_scope IS NULL OR f.scope = p_scope)
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              p_tenant, v_valid, p_known)
            ORDER BY f.created_at DESC, f.fact_id LIMIT 2000);
    ELSE
        v_lexical := ARRAY(
            SELECT m.fact_id FROM match_facts(
                v_terms.terms, v_idf, choose_terms(v_terms.terms, v_looked, 2000), v_terms.average, 4000,
                p_limit, v_valid, p_known, p_scope) m);
        IF p_relations IS NOT NULL THEN
            -- The best of all relations need not have one of these among them.
            v_related := ARRAY(
                SELECT f.fact_id FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.predicate_id = ANY (p_relations)
                  AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
                  AND (p_scope IS NULL OR f.scope = p_scope)
                  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                                  p_tenant, v_valid, p_known)
                ORDER BY f.created_at DESC, f.fact_id LIMIT 2000);
        END IF;
        IF v_query IS NOT NULL THEN
            v_near := ARRAY(
                SELECT n.owner_id FROM near_units(
                    p_tenant, p_project, 'fact', p_model, p_dimensions, p_vector, p_near, p_scope, p_valid, p_known,
                    p_relations, p_confidence, p_trust) n);
            -- Cards tell of the present alone.
            IF p_known IS NULL AND p_valid IS NULL THEN
                v_cards := ARRAY(
                    SELECT n.owner_id FROM near_units(
                        p_tenant, p_project, 'card', p_model, p_dimensions, p_vector, 3, p_scope) n);
            END IF;
        END IF;
        IF p_depth > 0 THEN
            -- What the best of them speak of, as far as they hold themselves.
            v_seeds := ARRAY(
                SELECT x.entity_id FROM (
                    SELECT u.entity_id, min(u.place) AS place FROM (
                        SELECT e.entity_id, h.place
                        FROM (SELECT l.id, l.place FROM unnest(v_lexical[1:10]) WITH ORDINALITY l(id, place)
                              UNION ALL
                              SELECT l.id, l.place FROM unnest(v_near[1:10]) WITH ORDINALITY l(id, place)) h
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.object_entity_id, f.source_trust,
                                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant,
                                                   p_known) AS sure
                            FROM graph_facts f
                            WHERE f.tenant_id = p_tenant AND f.fact_id = h.id
                              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                              f.retracted_at, p_tenant, v_valid, p_known)
                            OFFSET 0) f
                        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) e(entity_id)
                        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
                        UNION ALL
                        SELECT m.entity_id, l.place
                        FROM unnest(p_notes) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT m.entity_id FROM note_entity_mentions m
                            WHERE m.tenant_id = p_tenant AND m.note_id = l.id OFFSET 0) m
                        UNION ALL
                        -- What the nearest cards are about.
                        SELECT c.entity_id, l.place
                        FROM unnest(v_cards) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT c.entity_id FROM memory_cards c
                            WHERE c.tenant_id = p_tenant AND c.card_id = l.id OFFSET 0) c
                    ) u WHERE u.entity_id IS NOT NULL GROUP BY u.entity_id
                ) x ORDER BY x.place, x.entity_id LIMIT 20);
        END IF;
        IF cardinality(v_seeds) > 0 THEN
            SELECT array_agg(g.fact_id ORDER BY g.fact_id), array_agg(g.score ORDER BY g.fact_id),
                   array_agg(g.hops ORDER BY g.fact_id)
            INTO v_walked, v_graph, v_hops
            FROM (
                WITH walk AS MATERIALIZED (
                    -- Over edges that are trusted enough, and on from what was reached over such.
                    SELECT w.scope, w.entity_id, w.hops, w.confidence, w.out_degree, x.origin_id
                    FROM expand_seeds(p_tenant, p_project, v_scopes, v_seeds, p_depth, p_confidence, p_trust, v_valid,
                                      p_known, ARRAY[20, 10], 100, 1000) w
                    CROSS JOIN LATERAL (
                        SELECT CASE WHEN x.subject_entity_id = w.entity_id THEN x.object_entity_id
                               ELSE x.subject_entity_id END AS origin_id
                        FROM entity_edges x
                        WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id
                          AND w.confidence * x.source_trust >= p_trust
                        OFFSET 0) x
                )
                SELECT u.* FROM (
                    SELECT DISTINCT ON (f.fact_id) f.fact_id, r.score, r.hops
                    FROM (
                        SELECT w.entity_id, w.hops,
                               (1.0 / (1 + w.hops)) * w.confidence / ln(1 + greatest(w.out_degree, 1)) AS score
                        FROM walk w
                        WHERE w.hops = 1 OR EXISTS (
                            SELECT FROM walk v
                            WHERE v.scope = w.scope AND v.entity_id = w.origin_id AND v.hops = w.hops - 1)
                        UNION ALL
                        -- Where the walk starts: no edge was taken yet.
                        SELECT s.id, 0, 1 / ln(1 + greatest(d.degree, 1))
                        FROM unnest(v_seeds) s(id)
                        CROSS JOIN LATERAL (
                            SELECT count(*) AS degree FROM (
                                SELECT FROM entity_edges x
                                WHERE x.tenant_id = p_tenant AND x.project_id = p_project
                                  AND x.subject_entity_id = s.id AND (p_scope IS NULL OR x.scope = p_scope)
                                  AND x.created_at <= coalesce(p_known, 'infinity')
                                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                                LIMIT 1000) o) d
                        ORDER BY 3 DESC, 1 LIMIT 40
                    ) r
                    CROSS JOIN LATERAL (
                        SELECT f.fact_id FROM graph_facts f
                        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = r.entity_id
                          AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
                          AND (p_scope IS NULL OR f.scope = p_scope)
                          AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                          AND f.confidence * f.source_trust >= CASE WHEN p_known IS NULL THEN p_trust ELSE 0 END
                          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                          f.retracted_at, p_tenant, v_valid, p_known)
                        ORDER BY f.confidence DESC, f.fact_id DESC LIMIT 20
                    ) f
                    ORDER BY f.fact_id, r.score DESC, r.hops
                ) u ORDER BY u.score DESC, u.fact_id LIMIT 400
            ) g;
        END IF;
    END IF;
    RETURN (
    WITH chosen AS MATERIALIZED (
        SELECT c.id, max(c.graph) AS graph, min(c.hops) AS hops FROM (
            SELECT h.id, NULL::double precision AS graph, 0 AS hops FROM unnest(v_lexical) h(id)
            UNION ALL
            SELECT h.id, NULL, 0 FROM unnest(v_near || v_related) h(id)
            UNION ALL
            SELECT w.id, w.graph, w.hops FROM unnest(v_walked, v_graph, v_hops) w(id, graph, hops)
        ) c GROUP BY c.id
    ), stood AS MATERIALIZED (
        SELECT f.*, c.graph, c.hops FROM chosen c
        CROSS JOIN LATERAL (
            SELECT f.fact_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
                   ts_filter(setweight(f.terms, 'A', v_terms.terms), '{a}') AS terms,
                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = c.id AND f.project_id = p_project
              AND (p_scope IS NULL OR f.scope = p_scope)
              AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) f
        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
    )
    SELECT coalesce(json_agg(json_build_array(
           s.fact_id, coalesce(b.score, 0), e.cosine, s.graph, s.hops, s.sure, s.source_trust,
           extract(epoch FROM s.created_at), s.access_count, k.disputed, NOT k.worse,
           CASE WHEN EXISTS (SELECT FROM fact_derivations d
                             WHERE d.tenant_id = p_tenant AND d.fact_id = s.fact_id AND d.kind = 'derived')
                THEN derivation_depth(p_tenant, s.fact_id, 5) ELSE 0 END) ORDER BY s.fact_id), '[]')::text
    FROM stood s
    LEFT JOIN (
        SELECT x.fact_id,
               sum(t.idf * c.tf * 1.9 / (c.tf + 0.9 * (0.4 + 0.6 * x.terms_length / v_terms.average))) AS score
        FROM stood x
        CROSS JOIN LATERAL (
            SELECT u.lexeme, cardinality(u.positions)::double precision AS tf FROM unnest(x.terms) u) c
        JOIN unnest(v_terms.terms, v_idf) t(term, idf) ON t.term = c.lexeme
        GROUP BY x.fact_id
    ) b ON b.fact_id = s.fact_id
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'fact'
          AND e.owner_id = s.fact_id
        OFFSET 0) e ON v_query IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS disputed,
               coalesce(bool_or((o.sure, o.created_at) > (s.sure, s.created_at)), false) AS worse
        FROM (
            SELECT k.fact_b AS other FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_a = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
            UNION ALL
            SELECT k.fact_a FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_b = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
        ) k
        LEFT JOIN LATERAL (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.fact_id = k.other
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) o ON o.sure >= p_confidence AND o.sure * o.source_trust >= p_trust
    ) k);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_linked(
    p_tenant text, p_project text, p_query text, p_model smallint, p_dimensions int, p_vector text, p_sources uuid[],
    p_terms text[], p_total bigint, p_average double precision, p_reach int, p_known timestamptz, p_scope text,
    p_seen uuid[], p_limit int)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_links json;
    v_new uuid[];
BEGIN
    SELECT coalesce(json_agg(json_build_array(l.source_id, l.note_id, l.strength)), '[]'),
           array_agg(DISTINCT l.note_id) FILTER (WHERE l.note_id <> ALL (p_seen))
    INTO v_links, v_new
    FROM link_notes(p_tenant, p_project, p_sources, p_terms, p_total, p_average, p_known, p_scope, p_limit) l;
    RETURN json_build_object('links', v_links, 'found', CASE WHEN v_new IS NOT NULL THEN recall_notes(
        p_tenant, p_project, p_query, p_model, p_dimensions, p_vector, 0, p_reach, p_known, p_scope, v_new)::json END);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_notes(
    p_tenant text, p_project text, p_query text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_reach int, p_known timestamptz, p_scope text, p_wanted uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_hits uuid[] := coalesce(p_wanted, '{}');
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_query, 64) w;
    -- What stands nowhere any more may have stood somewhere then.
    v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
        SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
        ORDER BY d.place) END;
    IF p_limit > 0 THEN
        IF p_known IS NOT NULL THEN
            -- What was changed or deleted since is found by what it said then, and no index has that.
            v_hits := v_hits || ARRAY(
                SELECT n.note_id FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                  AND n.updated_at > p_known AND n.version > 1
                ORDER BY n.updated_at DESC, n.note_id LIMIT 500);
        END IF;
        v_idf := ARRAY(
            SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
        v_hits := v_hits || ARRAY(
            SELECT m.note_id FROM match_notes(
                v_terms.terms, v_idf, choose_terms(v_terms.terms, v_looked, 2000), v_terms.average, 4000,
                p_limit, p_known, p_scope) m);
        IF v_query IS NOT NULL THEN
            v_hits := v_hits || ARRAY(
                SELECT n.owner_id FROM near_units(
                    p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, p_limit, p_scope, NULL, p_known) n);
        END IF;
    END IF;
    RETURN (
        WITH hit AS MATERIALIZED (
            SELECT n.note_id, b.ids AS before, a.ids AS after
            FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
            CROSS JOIN LATERAL (
                SELECT n.note_id, n.thread_id, n.position FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.suppression = 0
                  AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
                  AND (p_known IS NULL OR n.created_at <= p_known) AND (p_scope IS NULL OR n.scope = p_scope)
                OFFSET 0) n
            CROSS JOIN LATERAL (
                SELECT CASE WHEN n.position IS NOT NULL THEN ARRAY(
                    SELECT x.note_id FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) < (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) END AS ids) b
            CROSS JOIN LATERAL (
                SELECT CASE WHEN n.position IS NOT NULL THEN ARRAY(
                    SELECT x.note_id FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) > (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) END AS ids) a
        ), unit AS MATERIALIZED (
            SELECT h.note_id AS id FROM hit h
            UNION
            SELECT x.id FROM hit h CROSS JOIN LATERAL unnest(h.before || h.after) x(id)
        )
        SELECT json_build_object(
            'terms', v_terms.terms, 'documents', v_terms.documents, 'total', v_terms.total, 'average', v_terms.average,
            'windows', (
                SELECT coalesce(json_agg(json_build_array(h.note_id, h.before, h.after) ORDER BY h.note_id), '[]')
                FROM hit h),
            'units', (
                SELECT coalesce(json_agg(json_build_array(
                    n.note_id, n.terms_length, CASE WHEN n.position IS NOT NULL THEN n.telling END,
                    ts_filter(setweight(n.said, 'A', v_terms.terms), '{a}')::text, e.cosine)
                    ORDER BY n.note_id), '[]')
                FROM unit u
                CROSS JOIN LATERAL (
                    SELECT n.note_id, n.terms_length, n.position, n.telling, n.updated_at > p_known AS changed,
                           CASE WHEN n.updated_at > p_known AND n.version > 1 THEN note_terms(
                               p_tenant, p_project, n.author, n.occurred_at, n.tags, coalesce((
                                   SELECT h.old_content FROM memory_history h
                                   WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id AND h.created_at > p_known
                                     AND h.old_content IS NOT NULL
                                   ORDER BY h.created_at, h.history_id LIMIT 1), n.content))
                           ELSE n.terms END AS said
                    FROM memory_notes n WHERE n.tenant_id = p_tenant AND n.note_id = u.id OFFSET 0) n
                LEFT JOIN LATERAL (
                    SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                    WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                      AND e.owner_kind = 'note' AND e.owner_id = u.id
                    OFFSET 0) e ON v_query IS NOT NULL AND n.changed IS NOT TRUE)));
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
CREATE OR REPLACE FUNCTION record_trace(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_trace uuid, p_key text,
    p_request jsonb, p_context jsonb, p_results jsonb, p_valid timestamptz, p_known timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    -- For the transaction and not the function: it is the commit that would wait.
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach);
    INSERT INTO recall_traces (
        tenant_id, trace_id, project_id, agent_id, key_id, request, context, results, valid_at, as_of, created_at)
    VALUES (p_tenant, p_trace, p_project, p_agent, p_key, p_request,
            p_context || jsonb_build_object('gardens', p_gardens, 'reach', p_reach), p_results,
            coalesce(p_valid, p_known, v_now), coalesce(p_known, v_now), v_now);
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
CREATE OR REPLACE FUNCTION resume_embeddings(p_model smallint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_count bigint;
BEGIN
    WITH pick AS (
        SELECT j.tenant_id, j.job_id FROM jobs j
        WHERE j.status = 'pending' AND j.kind = 'embed' AND j.available_at > v_now
          AND j.dedupe_key = 'embed ' || p_model
        FOR UPDATE SKIP LOCKED
    )
    UPDATE jobs j SET available_at = v_now FROM pick
    WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_embeddings()
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_models smallint[] := ARRAY(SELECT m.model_id FROM embedding_models m ORDER BY m.active DESC, m.model_id);
    v_tenant text := '';
    v_project text := '';
    v_model smallint;
    v_job uuid;
BEGIN
    LOOP
        SELECT q.tenant_id, q.project_id INTO v_tenant, v_project FROM embedding_queue q
        WHERE (q.tenant_id, q.project_id) > (v_tenant, v_project)
        ORDER BY q.tenant_id, q.project_id LIMIT 1;
        EXIT WHEN NOT FOUND;
        FOREACH v_model IN ARRAY v_models LOOP
            v_job := md5('embed ' || v_tenant || '/' || v_project || '/' || v_model)::uuid;
            CONTINUE WHEN EXISTS (
                SELECT FROM jobs j
                WHERE j.tenant_id = v_tenant AND j.job_id = v_job AND j.status IN ('pending', 'leased'));
            CONTINUE WHEN NOT EXISTS (
                SELECT FROM embedding_queue q
                WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = v_model
                  AND q.available_at <= v_now);
            RETURN QUERY
            INSERT INTO jobs AS j (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at,
                                   created_at)
            VALUES (v_tenant, v_job, v_project, 'embed', jsonb_build_object('model', v_model), 'embed ' || v_model,
                    'schedule', v_now, v_now)
            ON CONFLICT ON CONSTRAINT jobs_pkey DO UPDATE
            SET status = 'pending', payload = excluded.payload, attempts = 0, available_at = excluded.available_at,
                created_at = excluded.created_at, started_at = NULL, finished_at = NULL, last_error = NULL
            WHERE j.status NOT IN ('pending', 'leased')
            RETURNING j.tenant_id, j.job_id;
        END LOOP;
    END LOOP;
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
CREATE OR REPLACE FUNCTION store_cards(p_entity uuid, p_read_at timestamptz, p_places json, p_cards json)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_old jsonb;
    v_gone uuid[];
    v_changed uuid[];
BEGIN
    -- Never beside a tombstone or an erasure: what they hide must not come back in words.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    IF EXISTS (SELECT FROM tombstones t
               WHERE t.tenant_id = v_tenant AND t.project_id = v_project
                 AND (t.created_at >= p_read_at OR t.erased_at >= p_read_at))
       OR EXISTS (SELECT FROM tombstone_revocations r
                  WHERE r.tenant_id = v_tenant AND r.project_id = v_project AND r.revoked_at >= p_read_at) THEN
        RETURN 'changed';
    END IF;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id = p_entity AND e.merged_into IS NULL
      AND e.suppression = 0
    FOR KEY SHARE;
    IF NOT FOUND THEN
        RETURN 'gone';
    END IF;
    PERFORM FROM memory_cards c
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.entity_id = p_entity
    ORDER BY c.scope, c.owner_key FOR UPDATE;
    SELECT coalesce(jsonb_object_agg(c.scope || ' ' || c.owner_key, c.content), '{}'),
           array_agg(c.card_id) FILTER (WHERE c.built_at < p_read_at AND n.scope IS NULL AND (
               p_places IS NULL OR EXISTS (
                   SELECT FROM json_to_recordset(p_places) AS w(scope text, owner_key text)
                   WHERE w.scope = c.scope AND w.owner_key = c.owner_key)))
    INTO v_old, v_gone
    FROM memory_cards c
    LEFT JOIN json_to_recordset(p_cards) AS n(scope text, owner_key text)
        ON n.scope = c.scope AND n.owner_key = c.owner_key
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.entity_id = p_entity;
    PERFORM drop_cards(v_tenant, v_gone);

    WITH stored AS (
        INSERT INTO memory_cards AS c (
            tenant_id, card_id, project_id, entity_id, scope, garden_id, agent_id, owner_key, content, facts, omitted,
            built_at)
        SELECT v_tenant, n.card_id, v_project, p_entity, n.scope, f.garden_id,
               CASE n.scope WHEN 'agent_private' THEN f.agent_id ELSE '' END, n.owner_key, n.content, n.facts,
               n.omitted, p_read_at
        FROM json_to_recordset(p_cards)
            AS n(card_id uuid, scope text, owner_key text, content text, facts int, omitted int)
        CROSS JOIN LATERAL (
            SELECT f.garden_id, f.agent_id FROM graph_facts f
            WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.subject_entity_id = p_entity
              AND f.scope = n.scope AND f.owner_key = n.owner_key LIMIT 1
        ) f
        ORDER BY n.scope, n.owner_key
        ON CONFLICT (tenant_id, project_id, entity_id, scope, owner_key) DO UPDATE
        SET content = excluded.content, facts = excluded.facts, omitted = excluded.omitted,
            built_at = excluded.built_at
        WHERE c.built_at < excluded.built_at
        RETURNING c.card_id, c.content, c.scope, c.owner_key
    )
    SELECT array_agg(s.card_id) INTO v_changed FROM stored s
    WHERE s.content IS DISTINCT FROM v_old ->> (s.scope || ' ' || s.owner_key);
    PERFORM queue_units(v_tenant, v_project, 'card', v_changed);
    RETURN NULL;
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
CREATE OR REPLACE FUNCTION walk_edges(
    p_tenant text, p_project text, p_scope text, p_seeds uuid[], p_depth int, p_direction text, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[],
    p_cap int)
RETURNS TABLE (
    entity_id uuid, hops int, edge_id uuid, confidence double precision, path uuid[], truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_out boolean := p_direction <> 'in';
    v_in boolean := p_direction <> 'out';
    v_front uuid[] := p_seeds;
    v_offset int := 0;
    v_room int;
    v_new uuid[];
    v_new_parents int[];
    v_new_edges uuid[];
    v_new_confidences double precision[];
    v_hubs boolean;
    v_found uuid[] := '{}';
    v_hops int[] := '{}';
    v_parents int[] := '{}';
    v_edges uuid[] := '{}';
    v_confidences double precision[] := '{}';
    v_truncated boolean := false;
BEGIN
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_cap - cardinality(v_found);
        IF v_room = 0 THEN
            v_truncated := true;
            EXIT;
        END IF;
        -- One edge more than may be followed is asked for, and stands for all that are left out: it leads nowhere.
        -- Joins other than the lookups of edges go by hash: those by nested loops would grow with the square.
        IF p_known IS NULL THEN
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_now(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_valid, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        ELSE
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_then(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_valid, p_known, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        END IF;
        v_truncated := v_truncated OR coalesce(v_hubs, false) OR coalesce(cardinality(v_new), 0) > v_room;
        EXIT WHEN v_new IS NULL;
        v_front := v_new[:v_room];
        v_offset := cardinality(v_found);
        v_found := v_found || v_front;
        v_hops := v_hops || array_fill(v_level, ARRAY[cardinality(v_front)]);
        v_parents := v_parents || v_new_parents[:v_room];
        v_edges := v_edges || v_new_edges[:v_room];
        v_confidences := v_confidences || v_new_confidences[:v_room];
    END LOOP;
    RETURN QUERY
    SELECT u.entity_id, u.hops, u.edge_id, u.confidence,
           CASE u.hops WHEN 1 THEN ARRAY[u.edge_id]
                       WHEN 2 THEN ARRAY[v_edges[u.parent], u.edge_id]
                       ELSE ARRAY[v_edges[v_parents[u.parent]], v_edges[u.parent], u.edge_id] END,
           v_truncated
    FROM unnest(v_found, v_hops, v_edges, v_confidences, v_parents) u(entity_id, hops, edge_id, confidence, parent);
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
        dedupe_key = CASE WHEN NOT names_any(j.dedupe_key, v_ids) THEN j.dedupe_key END,
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
    v_language regconfig := project_language(p_tenant, p_project);
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
            fact_hash, hlc, single_valued, suppression, valid_from, valid_to, created_at, updated_at, closed_at, terms)
        SELECT p_tenant, d.fact_id, p_project, p_agent, d.scope, d.garden_id, d.owner_key, d.subject_id, d.predicate,
               d.predicate_id, d.object_id, p_values[d.s], d.object_hash, d.value_type, d.confidence, d.source,
               d.source_trust,
               hash_fact(d.confidence, s.canonical_norm, p.canonical, d.scope, d.source, d.valid_from,
                         CASE WHEN d.object_id IS NULL THEN d.value_type ELSE 'ref' END,
                         CASE WHEN d.object_id IS NULL THEN p_jsons[d.s] ELSE to_json(o.canonical_norm)::text END),
               d.hlc, d.mode = 2, d.suppression, d.valid_from, nullif(w.ends, 'infinity'), d.created_at, d.created_at,
               CASE WHEN w.ends < 'infinity' THEN d.created_at END,
               fact_terms(v_language, s.canonical, p.canonical, coalesce(o.canonical, p_values[d.s]))
        FROM unnest(v_steps) w
        JOIN unnest(v_turn) d ON d.idx = w.idx
        CROSS JOIN LATERAL (
            SELECT e.canonical, e.canonical_norm FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.entity_id = d.subject_id OFFSET 0
        ) s
        CROSS JOIN LATERAL (
            SELECT p.canonical FROM graph_predicates p
            WHERE p.tenant_id = p_tenant AND p.predicate_id = d.predicate_id OFFSET 0
        ) p
        LEFT JOIN LATERAL (
            SELECT e.canonical, e.canonical_norm FROM graph_entities e
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
    PERFORM queue_units(p_tenant, p_project, 'fact', ARRAY(
        SELECT w.fact_id FROM unnest(v_all) w JOIN unnest(p_drafts) d ON d.idx = w.idx
        WHERE w.is_new AND d.suppression = 0));
    RETURN v_all;
END
$$;
""",
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
    v_now timestamptz;
BEGIN
    -- Never beside the making of a card, which tells what is trusted enough.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_facts := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.source = p_source AND f.suppression <> 2
          AND f.fact_id > p_after
        ORDER BY f.fact_id LIMIT p_limit);
    UPDATE graph_facts f
    SET source_trust = CASE WHEN cardinality(p_agents) = 0 OR f.agent_id = ANY (p_agents) THEN p_trust
                            ELSE p_otherwise END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts)
      AND f.source_trust <> CASE WHEN cardinality(p_agents) = 0 OR f.agent_id = ANY (p_agents) THEN p_trust
                                 ELSE p_otherwise END;
    UPDATE entity_edges x SET source_trust = f.source_trust FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_facts) AND x.tenant_id = v_tenant AND x.edge_id = f.fact_id
      AND x.source_trust <> f.source_trust;
    RETURN QUERY SELECT v_facts[cardinality(v_facts)] WHERE cardinality(v_facts) = p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_maintenance(p_jobs_before timestamptz, p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.jobs f WHERE f.tenant_id = t.tenant_id
                  AND f.status IN ('completed', 'cancelled') AND f.finished_at < p_jobs_before)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
       OR EXISTS (SELECT FROM public.recall_traces r
                  JOIN public.projects p ON p.tenant_id = t.tenant_id AND p.project_id = r.project_id
                  WHERE r.tenant_id = t.tenant_id AND r.created_at < v_now
                        - make_interval(days => coalesce((p.settings ->> 'trace_days')::int, 30)))
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
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
    -- Cards tell of what is in sight: those of what was hidden, or is there again, are made anew when somebody asks.
    PERFORM drop_cards(p_tenant, cards_telling(p_tenant, p_project, v_changed));
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
    -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
    DELETE FROM embeddings x USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'fact'
      AND x.owner_id = f.fact_id;
    DELETE FROM embedding_queue q USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND q.tenant_id = p_tenant
      AND q.project_id = p_project AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
      AND q.owner_kind = 'fact' AND q.owner_id = f.fact_id;
    PERFORM queue_units(p_tenant, p_project, 'fact', v_restored);
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
$$;
""",
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
        IF v_change.level = 0 THEN
            PERFORM queue_units(p_tenant, v_change.project_id, 'note', ARRAY[v_change.note_id]);
        ELSE
            DELETE FROM embedding_queue q
            WHERE q.tenant_id = p_tenant AND q.project_id = v_change.project_id
              AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'note'
              AND q.owner_id = v_change.note_id;
        END IF;
    END LOOP;
    UPDATE memory_history x SET suppression = n.suppression FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
      AND x.tenant_id = p_tenant AND x.note_id = n.note_id AND x.suppression <> n.suppression;
    -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
    DELETE FROM embeddings x USING memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'note'
      AND x.owner_id = n.note_id;
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
$$;
""",
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
    -- What nobody believes has no vector.
    PERFORM queue_units(p_tenant, p_project, 'fact', p_facts);
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
$$;
""",
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
    -- What is hardly believed has no vector, until it is believed again.
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact
                 AND (f.confidence > 0.1) <> (p_confidence > 0.1)) THEN
        PERFORM queue_units(p_tenant, p_project, 'fact', ARRAY[p_fact]);
    END IF;
    UPDATE graph_facts f
    SET confidence = p_confidence, mentions = f.mentions + p_mentions, weighed_at = p_moment, updated_at = p_moment
    WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact;
    UPDATE entity_edges x
    SET confidence = p_confidence, weighed_at = p_moment,
        decayed_at = CASE WHEN p_decayed THEN p_moment ELSE x.decayed_at END
    WHERE x.tenant_id = p_tenant AND x.edge_id = p_fact;
END
$$;
""",
)

# And as they were.
OLD_FUNCTIONS = (
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
$$;
""",
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
$$;
""",
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
$$;
""",
    """
CREATE OR REPLACE FUNCTION schedule_maintenance(p_jobs_before timestamptz, p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.jobs f WHERE f.tenant_id = t.tenant_id
                  AND f.status IN ('completed', 'cancelled') AND f.finished_at < p_jobs_before)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
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
$$;
""",
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
$$;
""",
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
$$;
""",
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
$$;
""",
)

SIGNATURES: tuple[str, ...] = (
    "count_terms(tsvector)",
    "lexical_keys(text, text, text[])",
    "project_language(text, text)",
    "note_terms(text, text, text, timestamptz, text[], text)",
    "count_telling(text, text, text)",
    "fact_terms(regconfig, text, text, text)",
    "last_segment(text)",
    (
        "fact_stands(uuid, timestamptz, timestamptz, timestamptz, timestamptz, timestamptz, text, "
        "timestamptz, timestamptz)"
    ),
    "fact_confidence(uuid, double precision, timestamptz, timestamptz, text, timestamptz)",
    "queue_units(text, text, text, uuid[])",
    "redact_text(text, text[])",
    (
        "edges_now(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
        "timestamptz, bigint)"
    ),
    (
        "edges_then(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
        "timestamptz, timestamptz, bigint)"
    ),
    "cards_telling(text, text, uuid[])",
    "choose_terms(text[], bigint[], bigint)",
    "clear_traces(int, int)",
    "count_accesses(uuid[], int[], timestamptz)",
    "count_documents(text, text[], int)",
    "delay_units(smallint, json)",
    "derivation_depth(text, uuid, int)",
    "drop_cards(text, uuid[])",
    "embedding_metrics()",
    (
        "expand_seeds(text, text, text[], uuid[], int, double precision, double precision, timestamptz, "
        "timestamptz, int[], int, int)"
    ),
    (
        "find_neighbors(text, text, uuid, text, text, int, text, json, text[], double precision, double "
        "precision, timestamptz, timestamptz, timestamptz, int[], int, int, uuid, int)"
    ),
    "link_notes(text, text, uuid[], text[], bigint, double precision, timestamptz, text, int)",
    "match_facts(text[], double precision[], text[], double precision, int, int, timestamptz, timestamptz, text)",
    "match_notes(text[], double precision[], text[], double precision, int, int, timestamptz, text)",
    (
        "near_units(text, text, text, smallint, int, text, int, text, timestamptz, timestamptz, uuid[], "
        "double precision, double precision)"
    ),
    "queue_cards(uuid[])",
    "read_card_facts(uuid, json)",
    "read_units(smallint, int, double precision, text[])",
    (
        "recall_facts(text, text, text, smallint, int, text, int, int, timestamptz, timestamptz, text, uuid, "
        "uuid[], double precision, double precision, int, uuid[])"
    ),
    (
        "recall_linked(text, text, text, smallint, int, text, uuid[], text[], bigint, double precision, int, "
        "timestamptz, text, uuid[], int)"
    ),
    "recall_notes(text, text, text, smallint, int, text, int, int, timestamptz, text, uuid[])",
    "reconcile_embeddings(double precision)",
    "record_trace(text, text, text, uuid[], text, uuid, text, jsonb, jsonb, jsonb, timestamptz, timestamptz)",
    "refresh_lexicon(text, bigint)",
    "reindex_terms(text, uuid, int)",
    "resume_embeddings(smallint)",
    "schedule_embeddings()",
    "schedule_reconciliations(timestamptz)",
    "store_cards(uuid, timestamptz, json, json)",
    "store_vectors(smallint, timestamptz, json, text[])",
    (
        "walk_edges(text, text, text, uuid[], int, text, uuid[], double precision, double precision, "
        "timestamptz, timestamptz, int[], int)"
    ),
    "weigh_terms(text, text, text, text, int)",
)

# What was there before is found by its words too, and embedded like everything else.
FILL = """
INSERT INTO embedding_models (model_id, provider, model, version, dimensions, active, created_at, activated_at)
VALUES (1, 'local', 'all-MiniLM-L6-v2', 1, 384, true, now(), now());
CREATE INDEX embeddings_1_idx ON embeddings USING hnsw ((vector::vector(384)) vector_ip_ops)
    WITH (ef_construction = 128) WHERE model_id = 1;
UPDATE memory_notes n
SET terms = note_terms(n.tenant_id, n.project_id, n.author, n.occurred_at, n.tags, n.content),
    telling = count_telling(n.tenant_id, n.project_id, n.content);
UPDATE graph_facts f
SET terms = fact_terms(project_language(f.tenant_id, f.project_id), s.canonical, p.canonical,
                       coalesce(o.canonical, f.object_value))
FROM graph_facts x
JOIN graph_entities s ON s.tenant_id = x.tenant_id AND s.entity_id = x.subject_entity_id
JOIN graph_predicates p ON p.tenant_id = x.tenant_id AND p.predicate_id = x.predicate_id
LEFT JOIN graph_entities o ON o.tenant_id = x.tenant_id AND o.entity_id = x.object_entity_id
WHERE x.tenant_id = f.tenant_id AND x.fact_id = f.fact_id;
INSERT INTO embedding_queue (tenant_id, project_id, owner_kind, owner_id, model_id, queued_at, available_at)
SELECT n.tenant_id, n.project_id, 'note', n.note_id, 1, now(), now() FROM memory_notes n
WHERE n.deleted_at IS NULL AND n.suppression = 0
UNION ALL
SELECT f.tenant_id, f.project_id, 'fact', f.fact_id, 1, now(), now() FROM graph_facts f
WHERE f.retracted_at IS NULL AND f.suppression = 0;
CREATE INDEX memory_notes_terms_idx ON memory_notes
    USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms))) WITH (fastupdate = off);
CREATE INDEX graph_facts_terms_idx ON graph_facts
    USING gin (lexical_keys(tenant_id, project_id, tsvector_to_array(terms))) WITH (fastupdate = off);
"""

UNDO = """
DROP TABLE recall_traces, memory_cards, lexical_frequencies, lexical_statistics, redaction_counts,
    embedding_redactions, embedding_counts, embedding_queue, embeddings, embedding_models;
DROP INDEX graph_facts_terms_idx, memory_notes_terms_idx, entity_edges_out_idx, entity_edges_in_idx;
CREATE INDEX entity_edges_out_idx ON entity_edges (tenant_id, project_id, subject_entity_id, confidence, edge_id);
CREATE INDEX entity_edges_in_idx ON entity_edges (tenant_id, project_id, object_entity_id, confidence, edge_id);
ALTER TABLE graph_facts DROP COLUMN terms_length, DROP COLUMN terms;
ALTER TABLE memory_notes DROP COLUMN terms_length, DROP COLUMN terms, DROP COLUMN telling;
"""


def upgrade() -> None:
    for function in EARLY_FUNCTIONS:
        execute_literal(function)
    execute_literal(TABLES)
    for number in range(PARTITIONS):
        part = f"embeddings_{number}"
        op.execute(
            f"CREATE TABLE {part} PARTITION OF embeddings FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})"
        )
        # Reached through the whole alone, where the policy is.
        op.execute(f"ALTER TABLE {part} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE {part} FORCE ROW LEVEL SECURITY")
    for table, (rule, grants) in RULES.items():
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    op.execute(f"GRANT SELECT ON embedding_models TO {APP_ROLE}")
    for function in FUNCTIONS:
        execute_literal(function)
    for signature in SIGNATURES:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")
    execute_literal(FILL)


def downgrade() -> None:
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    execute_literal(UNDO)
    for signature in reversed(SIGNATURES):
        op.execute(f"DROP FUNCTION {signature}")
