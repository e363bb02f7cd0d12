-- Deletes facts with their history, edges, cards and vectors, and the vectors of notes and objects that are deleted
-- next. p_sourced are facts that stay, but lost their source. Returns how many rows of each table were deleted. Runs
-- with the settings and rights of erase_entity.
CREATE OR REPLACE FUNCTION erase_facts(
    p_tombstone tombstones, p_facts uuid[], p_sourced uuid[], p_notes uuid[], p_objects uuid[])
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := p_tombstone.tenant_id;
    v_project text := p_tombstone.project_id;
    v_count bigint;
    v_counts jsonb := '{}';
    v_table text;
    v_cards uuid[];
BEGIN
    FOREACH v_table IN ARRAY ARRAY['graph_fact_evidence', 'fact_closings', 'fact_confidences', 'fact_retractions',
                                   'fact_derivations', 'graph_fact_mentions'] LOOP
        EXECUTE format('SELECT count(*) FROM %I x WHERE x.tenant_id = $1 AND x.fact_id = ANY ($2)', v_table)
        INTO v_count USING v_tenant, p_facts;
        v_counts := v_counts || jsonb_build_object(v_table, v_count);
    END LOOP;
    SELECT count(*) INTO v_count FROM fact_conflicts x
    WHERE x.tenant_id = v_tenant AND (x.fact_a = ANY (p_facts) OR x.fact_b = ANY (p_facts));
    v_counts := v_counts || jsonb_build_object('fact_conflicts', v_count);
    SELECT count(*) INTO v_count FROM graph_fact_supersessions x
    WHERE x.tenant_id = v_tenant AND (x.from_fact_id = ANY (p_facts) OR x.to_fact_id = ANY (p_facts));
    v_counts := v_counts || jsonb_build_object('graph_fact_supersessions', v_count);
    SELECT count(*) INTO v_count FROM entity_edges x WHERE x.tenant_id = v_tenant AND x.edge_id = ANY (p_facts);
    v_counts := v_counts || jsonb_build_object('entity_edges', v_count);
    v_cards := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.entity_id = p_tombstone.entity_id
          AND (p_tombstone.scopes IS NULL OR c.scope = ANY (p_tombstone.scopes))
        -- And the cards of others that show erased facts or sources.
        UNION SELECT unnest(cards_of_facts(v_tenant, v_project, p_facts || p_sourced)));
    DELETE FROM embedding_queue q
    WHERE q.tenant_id = v_tenant AND q.owner_id = ANY (p_facts || p_notes || v_cards || p_objects);
    DELETE FROM embeddings x
    WHERE x.tenant_id = v_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind IN ('note', 'fact', 'card', 'object')
      AND x.owner_id = ANY (p_facts || p_notes || v_cards || p_objects);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('embeddings', v_count);
    DELETE FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_cards);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('memory_cards', v_count);
    -- Conflicts between other facts stay resolved without the winner.
    UPDATE fact_conflicts x SET winner = NULL WHERE x.tenant_id = v_tenant AND x.winner = ANY (p_facts);
    DELETE FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (p_facts);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    v_counts := v_counts || jsonb_build_object('graph_facts', v_count);
    RETURN v_counts;
END
$$;
