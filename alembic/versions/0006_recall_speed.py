"""Recall in less time: an index of vectors for each kind, words looked up while the query is embedded, and what tells
whether a fact stands becomes part of the query that asks."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# Those that answer to other parameters than before.
OLD_SIGNATURES = (
    "recall_facts(text, text, text, smallint, int, text, int, int, timestamptz, timestamptz, text, uuid, uuid[], "
    "double precision, double precision, int, uuid[])",
    "recall_linked(text, text, text, smallint, int, text, uuid[], text[], bigint, double precision, int, timestamptz, "
    "text, uuid[], int)",
    "recall_notes(text, text, text, smallint, int, text, int, int, timestamptz, text, uuid[])",
)
SIGNATURES = (
    "fact_stood(uuid, timestamptz, timestamptz, timestamptz, timestamptz, timestamptz, text, timestamptz, timestamptz)",
    "past_confidence(uuid, double precision, timestamptz, timestamptz, text, timestamptz)",
    "recall_facts(text, text, text[], double precision[], double precision, smallint, text, uuid[], uuid[], uuid[], "
    "int, timestamptz, timestamptz, text, uuid, uuid[], double precision, double precision, int, uuid[])",
    "recall_linked(text, text, text[], smallint, int, text, uuid[], bigint, double precision, int, timestamptz, text, "
    "uuid[], int)",
    "recall_notes(text, text, text[], smallint, int, text, int, int, timestamptz, text, uuid[])",
    "recall_words(text, text, text, text, int, timestamptz, timestamptz, text)",
)

# Of every model there is; the names of parts are of indexes that were made one by one, perhaps not to the end.
INDEXES = """
DO $do$
DECLARE
    v_model record;
    v_kind text;
    v_part int;
BEGIN
    FOR v_model IN SELECT m.model_id, m.dimensions FROM embedding_models m ORDER BY m.model_id LOOP
        FOREACH v_kind IN ARRAY ARRAY['note', 'fact'] LOOP
            EXECUTE format(
                'CREATE INDEX embeddings_%1$s_%2$s_idx ON embeddings '
                'USING hnsw ((vector::halfvec(%3$s)) halfvec_ip_ops) WITH (m = 24, ef_construction = 128) '
                'WHERE model_id = %1$s AND owner_kind = %2$L', v_model.model_id, v_kind, v_model.dimensions);
        END LOOP;
        EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_idx', v_model.model_id);
        FOR v_part IN 0 .. 7 LOOP
            EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_%s_idx', v_part, v_model.model_id);
        END LOOP;
    END LOOP;
END
$do$;
"""
OLD_INDEXES = """
DO $do$
DECLARE
    v_model record;
    v_kind text;
    v_part int;
BEGIN
    FOR v_model IN SELECT m.model_id, m.dimensions FROM embedding_models m ORDER BY m.model_id LOOP
        FOREACH v_kind IN ARRAY ARRAY['note', 'fact'] LOOP
            EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_%s_idx', v_model.model_id, v_kind);
            FOR v_part IN 0 .. 7 LOOP
                EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_%s_%s_idx', v_part, v_model.model_id, v_kind);
            END LOOP;
        END LOOP;
        EXECUTE format(
            'CREATE INDEX embeddings_%1$s_idx ON embeddings USING hnsw ((vector::vector(%2$s)) vector_ip_ops) '
            'WITH (ef_construction = 128) WHERE model_id = %1$s', v_model.model_id, v_model.dimensions);
    END LOOP;
END
$do$;
"""

FUNCTIONS = (
    """
CREATE OR REPLACE FUNCTION fact_stood(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT p_from <= p_valid AND p_created <= p_known
       AND (p_retracted IS NULL OR p_retracted > p_known)
       AND CASE WHEN p_closed > p_known THEN (
               SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
               WHERE c.tenant_id = p_tenant AND c.fact_id = p_fact AND c.recorded_at > p_known
               ORDER BY c.recorded_at LIMIT 1) ELSE p_until END > p_valid
$$;
""",
    """
CREATE OR REPLACE FUNCTION past_confidence(
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
CREATE OR REPLACE FUNCTION fact_stands(
    p_fact uuid, p_from timestamptz, p_until timestamptz, p_created timestamptz, p_closed timestamptz,
    p_retracted timestamptz, p_tenant text, p_valid timestamptz, p_known timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_from <= p_valid AND p_retracted IS NULL AND p_until > p_valid
           ELSE fact_stood(p_fact, p_from, p_until, p_created, p_closed, p_retracted, p_tenant, p_valid, p_known) END
$$;
""",
    """
CREATE OR REPLACE FUNCTION fact_confidence(
    p_fact uuid, p_confidence double precision, p_weighed timestamptz, p_retracted timestamptz, p_tenant text,
    p_known timestamptz)
RETURNS double precision
LANGUAGE sql STABLE
AS $$
    SELECT CASE WHEN p_known IS NULL THEN p_confidence
           ELSE past_confidence(p_fact, p_confidence, p_weighed, p_retracted, p_tenant, p_known) END
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
    SELECT f.note_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.note_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.note_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.note_id ORDER BY 2 DESC, 1 LIMIT p_limit;
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
    SELECT f.fact_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
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
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_found int;
BEGIN
    -- How many of this kind there are; cards are few.
    SELECT CASE WHEN p_kind = 'card' THEN 0 WHEN c.notes + c.facts = 0 THEN c.vectors
                WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
    INTO v_vectors FROM embedding_counts c
    WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
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
                set_config('hnsw.ef_search', least(greatest(120, 2 * p_limit), 400)::text, true),
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
CREATE OR REPLACE FUNCTION recall_words(
    p_tenant text, p_project text, p_kind text, p_query text, p_limit int, p_valid timestamptz, p_known timestamptz,
    p_scope text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_chosen text[];
    v_hits uuid[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, p_kind, p_query, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    IF p_limit > 0 THEN
        -- What stands nowhere any more may have stood somewhere then.
        v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
            SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
            ORDER BY d.place) END;
        v_chosen := choose_terms(v_terms.terms, v_looked, 2000);
        IF p_kind = 'fact' THEN
            v_hits := ARRAY(
                SELECT m.fact_id FROM match_facts(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, v_valid, p_known, p_scope) m);
        ELSE
            IF p_known IS NOT NULL THEN
                -- What was changed or deleted since is found by what it said then, and no index has that.
                v_hits := ARRAY(
                    SELECT n.note_id FROM memory_notes n
                    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                      AND n.updated_at > p_known AND n.version > 1
                    ORDER BY n.updated_at DESC, n.note_id LIMIT 500);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, p_known, p_scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_terms.terms, 'idf', v_idf, 'total', v_terms.total, 'average', v_terms.average, 'hits', v_hits);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_notes(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_near int,
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
    v_hits uuid[] := p_wanted;
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF v_query IS NOT NULL AND p_near > 0 THEN
        v_hits := v_hits || ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, p_near, p_scope, NULL, p_known) n);
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
            'windows', (
                SELECT coalesce(json_agg(json_build_array(h.note_id, h.before, h.after) ORDER BY h.note_id), '[]')
                FROM hit h),
            'units', (
                SELECT coalesce(json_agg(json_build_array(
                    n.note_id, n.terms_length, CASE WHEN n.position IS NOT NULL THEN n.telling END,
                    ts_filter(setweight(n.said, 'A', p_terms), '{a}')::text, e.cosine)
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
CREATE OR REPLACE FUNCTION recall_linked(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_sources uuid[],
    p_total bigint, p_average double precision, p_reach int, p_known timestamptz, p_scope text,
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
        p_tenant, p_project, p_terms, p_model, p_dimensions, p_vector, 0, p_reach, p_known, p_scope, v_new)::json END);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_facts(
    p_tenant text, p_project text, p_terms text[], p_idf double precision[], p_average double precision,
    p_model smallint, p_vector text, p_lexical uuid[], p_near uuid[], p_cards uuid[], p_walked int, p_valid timestamptz,
    p_known timestamptz, p_scope text, p_entity uuid, p_relations uuid[], p_confidence double precision,
    p_trust double precision, p_depth int, p_notes uuid[])
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
    v_lexical uuid[] := p_lexical;
    v_related uuid[] := '{}';
    v_seeds uuid[] := '{}';
    v_walked uuid[] := '{}';
    v_graph double precision[] := '{}';
    v_hops int[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
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
        IF p_depth > 0 THEN
            -- What the best of them speak of, as far as they hold themselves.
            v_seeds := ARRAY(
                SELECT x.entity_id FROM (
                    SELECT u.entity_id, min(u.place) AS place FROM (
                        SELECT e.entity_id, h.place
                        FROM (SELECT l.id, l.place FROM unnest(v_lexical[1:10]) WITH ORDINALITY l(id, place)
                              UNION ALL
                              SELECT l.id, l.place FROM unnest(p_near[1:10]) WITH ORDINALITY l(id, place)) h
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
                        FROM unnest(p_cards) WITH ORDINALITY l(id, place)
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
                ) u ORDER BY u.score DESC, u.fact_id LIMIT p_walked
            ) g;
        END IF;
    END IF;
    RETURN (
    WITH chosen AS MATERIALIZED (
        SELECT c.id, max(c.graph) AS graph, min(c.hops) AS hops FROM (
            SELECT h.id, NULL::double precision AS graph, 0 AS hops FROM unnest(v_lexical) h(id)
            UNION ALL
            SELECT h.id, NULL, 0 FROM unnest(p_near || v_related) h(id)
            UNION ALL
            SELECT w.id, w.graph, w.hops FROM unnest(v_walked, v_graph, v_hops) w(id, graph, hops)
        ) c GROUP BY c.id
    ), stood AS MATERIALIZED (
        SELECT f.*, c.graph, c.hops FROM chosen c
        CROSS JOIN LATERAL (
            SELECT f.fact_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
                   ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms,
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
               sum(t.idf * x.tf * 1.9 / (x.tf + 0.9 * (0.4 + 0.6 * x.terms_length / p_average))) AS score
        FROM (
            SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
            FROM (SELECT x.fact_id, x.terms_length, unnest(x.terms) AS word FROM stood x OFFSET 0) w
        ) x
        JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = x.lexeme
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
)

OLD_FUNCTIONS = (
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
)


def upgrade() -> None:
    for signature in OLD_SIGNATURES:
        op.execute(f"DROP FUNCTION {signature}")
    for function in FUNCTIONS:
        execute_literal(function)
    _grant(SIGNATURES)
    execute_literal(INDEXES)


def downgrade() -> None:
    execute_literal(OLD_INDEXES)
    for signature in SIGNATURES[2:]:
        op.execute(f"DROP FUNCTION {signature}")
    for function in OLD_FUNCTIONS:
        execute_literal(function)
    _grant(OLD_SIGNATURES)
    # What they were part of is restored by now.
    for signature in SIGNATURES[:2]:
        op.execute(f"DROP FUNCTION {signature}")


def _grant(signatures: tuple[str, ...]) -> None:
    for signature in signatures:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")
