"""Recall in less time once more: indexes of vectors that are made with more care and so find as much in fewer steps,
and notes that are read once, each in the window it was found in."""

from app.db.migrations import execute_literal

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Of every model there is. The old ones serve until the new ones are made, and only then go: reading goes on meanwhile.
# The names of parts are of indexes that were made one by one, perhaps not to the end.
INDEXES = """
DO $do$
DECLARE
    v_index record;
    v_part int;
BEGIN
    FOR v_index IN
        SELECT m.model_id, m.dimensions, k.kind FROM embedding_models m, unnest(ARRAY['note', 'fact']) k(kind)
        ORDER BY m.model_id, k.kind
    LOOP
        EXECUTE format(
            'CREATE INDEX embeddings_%1$s_%2$s_new ON embeddings '
            'USING hnsw ((vector::halfvec(%3$s)) halfvec_ip_ops) WITH (m = 24, ef_construction = {care}) '
            'WHERE model_id = %1$s AND owner_kind = %2$L', v_index.model_id, v_index.kind, v_index.dimensions);
    END LOOP;
    FOR v_index IN
        SELECT m.model_id, k.kind FROM embedding_models m, unnest(ARRAY['note', 'fact']) k(kind)
        ORDER BY m.model_id, k.kind
    LOOP
        EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_%s_idx', v_index.model_id, v_index.kind);
        FOR v_part IN 0 .. 7 LOOP
            EXECUTE format('DROP INDEX IF EXISTS embeddings_%s_%s_%s_idx', v_part, v_index.model_id, v_index.kind);
        END LOOP;
        EXECUTE format('ALTER INDEX embeddings_%1$s_%2$s_new RENAME TO embeddings_%1$s_%2$s_idx',
                       v_index.model_id, v_index.kind);
    END LOOP;
END
$do$;
"""
CARE, OLD_CARE = "256", "128"

FUNCTIONS = (
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
        SELECT coalesce(json_agg(w.units ORDER BY h.id), '[]')::text
        FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
        CROSS JOIN LATERAL (
            SELECT n.note_id, n.thread_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
            FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.suppression = 0
              AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
              AND (p_known IS NULL OR n.created_at <= p_known) AND (p_scope IS NULL OR n.scope = p_scope)
            OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(
                       u.note_id, u.terms_length, CASE WHEN u.position IS NOT NULL THEN u.telling END,
                       ts_filter(setweight(
                           CASE WHEN u.updated_at > p_known AND u.version > 1 THEN (
                               SELECT note_terms(
                                   p_tenant, p_project, o.author, o.occurred_at, o.tags, coalesce((
                                       SELECT h.old_content FROM memory_history h
                                       WHERE h.tenant_id = p_tenant AND h.note_id = o.note_id AND h.created_at > p_known
                                         AND h.old_content IS NOT NULL
                                       ORDER BY h.created_at, h.history_id LIMIT 1), o.content))
                               FROM memory_notes o WHERE o.tenant_id = p_tenant AND o.note_id = u.note_id)
                           ELSE u.terms END, 'A', p_terms), '{a}')::text,
                       e.cosine) ORDER BY u.place) AS units
            FROM (
                SELECT 0 AS place, n.note_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
                UNION ALL
                SELECT -row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) < (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) x
                UNION ALL
                SELECT row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) > (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) x
            ) u
            -- Meaning reaches two steps far (see threads.py); vectors are dear to read.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                OFFSET 0) e ON v_query IS NOT NULL AND abs(u.place) <= 2 AND (u.updated_at > p_known) IS NOT TRUE
        ) w);
END
$$;
""",
)

OLD_FUNCTIONS = (
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
)


def upgrade() -> None:
    _apply(FUNCTIONS, CARE)


def downgrade() -> None:
    _apply(OLD_FUNCTIONS, OLD_CARE)


def _apply(functions: tuple[str, ...], care: str) -> None:
    for function in functions:
        execute_literal(function)
    execute_literal(INDEXES.replace("{care}", care))
