-- Gives the rows that belong to facts the suppression of their facts, and removes the vectors of hidden facts.
-- Rows that link two others have the stricter level of both. p_cited are facts whose evidence changed too.
-- Runs with the settings and rights of hide_or_restore_facts.
CREATE OR REPLACE FUNCTION hide_or_restore_fact_rows(p_tenant text, p_project text, p_facts uuid[], p_cited uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
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
    -- Marking a vector as hidden would cost the index as much as making it again.
    DELETE FROM embeddings x USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND x.tenant_id = p_tenant
      AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self' AND x.owner_kind = 'fact'
      AND x.owner_id = f.fact_id;
    DELETE FROM embedding_queue q USING graph_facts f
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_facts) AND f.suppression > 0 AND q.tenant_id = p_tenant
      AND q.project_id = p_project AND q.model_id IN (SELECT m.model_id FROM embedding_models m)
      AND q.owner_kind = 'fact' AND q.owner_id = f.fact_id;
    UPDATE graph_fact_evidence x SET suppression = stricter_level(f.suppression, n.suppression)
    FROM graph_facts f, memory_notes n
    WHERE f.tenant_id = p_tenant AND f.fact_id = ANY (p_cited)
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
