-- Deletes cards and their vectors; they are built again when requested. Runs with the rights of its caller.
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
