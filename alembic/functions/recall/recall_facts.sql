-- What ranking needs of facts: of those best by terms and nearest by meaning (p_lexical, p_near), and those of entities
-- that are a few edges away from what these, the found notes and the nearest cards speak of; all that stand at the two
-- times, are sure enough and trusted enough, as JSON. With p_entity all facts of that entity instead. Each with its score
-- in every channel, as far as it has one, and what salience asks. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION recall_facts(
    p_tenant text, p_project text, p_terms text[], p_idf double precision[], p_average double precision,
    p_model smallint, p_vector text, p_lexical uuid[], p_near uuid[], p_cards uuid[], p_walked int, p_valid timestamptz,
    p_known timestamptz, p_scope text, p_entity uuid, p_relations uuid[], p_confidence double precision,
    p_trust double precision, p_depth int, p_notes uuid[], p_contradicted boolean)
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
        v_lexical := facts_of(p_tenant, p_project, p_entity, p_relations, p_terms, p_idf, v_valid, p_known, p_scope,
                              p_confidence, p_trust, p_contradicted);
    ELSE
        IF p_relations IS NOT NULL THEN
            -- The best of all relations need not have one of these among them.
            v_related := facts_of(p_tenant, p_project, NULL, p_relations, p_terms, p_idf, v_valid, p_known, p_scope,
                                  p_confidence, p_trust, p_contradicted);
        END IF;
        IF p_depth > 0 THEN
            -- Whom the best of them are about, as far as they hold themselves; whom they lead to is a hop away.
            v_seeds := ARRAY(
                SELECT x.entity_id FROM (
                    SELECT u.entity_id, min(u.place) AS place FROM (
                        SELECT f.subject_entity_id AS entity_id, h.place
                        FROM (SELECT l.id, l.place FROM unnest(v_lexical[1:10]) WITH ORDINALITY l(id, place)
                              UNION ALL
                              SELECT l.id, l.place FROM unnest(p_near[1:10]) WITH ORDINALITY l(id, place)) h
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.source_trust,
                                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant,
                                                   p_known) AS sure
                            FROM graph_facts f
                            WHERE f.tenant_id = p_tenant AND f.fact_id = h.id
                              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                              f.retracted_at, p_tenant, v_valid, p_known)
                            OFFSET 0) f
                        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
                        UNION ALL
                        -- Whom the facts are about that cite the notes, as far as the caller may read them.
                        SELECT x.entity_id, l.place
                        FROM unnest(p_notes) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.object_entity_id FROM graph_fact_evidence v
                            CROSS JOIN LATERAL (
                                SELECT f.subject_entity_id, f.object_entity_id FROM graph_facts f
                                WHERE f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                                  AND (p_known IS NULL OR f.created_at <= p_known) OFFSET 0) f
                            WHERE v.tenant_id = p_tenant AND v.note_id = l.id OFFSET 0) f
                        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
                        WHERE x.entity_id IS NOT NULL
                        UNION ALL
                        -- What the nearest cards are about.
                        SELECT c.entity_id, l.place
                        FROM unnest(p_cards) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT c.entity_id FROM memory_cards c
                            WHERE c.tenant_id = p_tenant AND c.card_id = l.id OFFSET 0) c
                    ) u GROUP BY u.entity_id
                ) x ORDER BY x.place, x.entity_id LIMIT 20);
        END IF;
        IF cardinality(v_seeds) > 0 THEN
            SELECT array_agg(g.fact_id ORDER BY g.fact_id), array_agg(g.score ORDER BY g.fact_id),
                   array_agg(g.hops ORDER BY g.fact_id)
            INTO v_walked, v_graph, v_hops
            FROM (
                SELECT u.* FROM (
                    SELECT DISTINCT ON (f.fact_id) f.fact_id, r.score, r.hops
                    FROM (
                        SELECT w.entity_id, w.hops,
                               (1.0 / (1 + w.hops)) * w.confidence / ln(1 + greatest(w.out_degree, 1)) AS score
                        FROM expand_seeds(p_tenant, p_project, v_scopes, v_seeds, p_depth, p_confidence, p_trust,
                                          v_valid, p_known, ARRAY[20, 10], 100, 1000) w
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
            SELECT f.fact_id, f.garden_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
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
                THEN derivation_depth(p_tenant, s.fact_id, 5) ELSE 0 END,
           s.garden_id IS NOT NULL AND EXISTS (
               SELECT FROM gardens g
               WHERE g.tenant_id = p_tenant AND g.garden_id = s.garden_id AND g.slug = 'quarantine')
           ) ORDER BY s.fact_id), '[]')::text
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
