"""Recall in less time: the search of the model that every installation has is planned once and not each time, and
vectors that nobody needs are not read."""

from app.db.migrations import execute_literal

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
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
                set_config('hnsw.max_scan_tuples', '40000', true), set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        IF p_model = 1 AND p_dimensions = 384 AND p_kind = 'note' AND p_known IS NULL THEN
            -- As below, for the model that every installation has: planned once and not each time, which would take a
            -- fifth of the time.
            RETURN QUERY
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'note' AND e.model_id = 1
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id;
        ELSIF p_model = 1 AND p_dimensions = 384 AND p_kind = 'fact' THEN
            RETURN QUERY
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                CROSS JOIN LATERAL (
                    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known)
                               AS sure, f.source_trust
                    FROM graph_facts f
                    WHERE f.tenant_id = p_tenant AND f.fact_id = e.owner_id
                      AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                      f.retracted_at, p_tenant, v_valid, p_known)
                    OFFSET 0) h
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'fact' AND e.model_id = 1
                  AND h.sure >= p_confidence AND h.sure > 0 AND h.sure * h.source_trust >= p_trust
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id;
        ELSE
            RETURN QUERY EXECUTE format(
                'WITH near AS MATERIALIZED ('
                '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
                '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
                'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id',
                p_dimensions, v_holds, v_mine, v_enough)
            USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
        END IF;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            RETURN;
        END IF;
        -- Nothing of what the caller may read was met: then it is little, and is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    IF v_holds = '' THEN
        RETURN QUERY
        SELECT e.owner_id, -(e.vector <#> v_query) FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
          AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = p_kind AND e.model_id = p_model
        ORDER BY e.vector <#> v_query, e.owner_id LIMIT p_limit;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
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
        WHERE v_query IS NOT NULL
          AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'fact'
          AND e.owner_id = s.fact_id
        OFFSET 0) e ON true
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
            -- Meaning reaches two steps far (see threads.py). Asked inside: vectors are dear to read, and must not be read
            -- before it turns out that nobody needs them.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE v_query IS NOT NULL AND abs(u.place) <= 2 AND (u.updated_at > p_known) IS NOT TRUE
                  AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                OFFSET 0) e ON true
        ) w);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
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
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 200), v_terms.average, 1000,
                     60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 60, p_scope) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE v_query IS NOT NULL
          AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON true
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
""",
)

# As they were.
OLD_FUNCTIONS: tuple[str, ...] = (
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
    """
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
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
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 200), v_terms.average, 1000,
                     60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 60, p_scope) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON v_query IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
""",
)


def upgrade() -> None:
    for function in FUNCTIONS:
        execute_literal(function)


def downgrade() -> None:
    for function in OLD_FUNCTIONS:
        execute_literal(function)
