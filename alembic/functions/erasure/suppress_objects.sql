-- Set the suppression of objects whose level has changed (see object_levels): hide heads and versions and delete their
-- vectors, or restore them. An object whose key another live one has taken meanwhile is restored deleted, by a new
-- version. Runs with the rights and the planner settings of its caller, who has locked the heads.
CREATE OR REPLACE FUNCTION suppress_objects(p_tenant text, p_objects uuid[], p_agent text, p_now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
    v_hidden uuid[] := ARRAY(SELECT l.id FROM object_levels(p_tenant, p_objects) l WHERE l.level > 0);
    v_head record;
BEGIN
    UPDATE graph_objects o SET suppression = l.level FROM object_levels(p_tenant, v_hidden) l
    WHERE o.tenant_id = p_tenant AND o.canonical_id = l.id AND o.suppression <> l.level;
    -- One after the other: of two with one key the older keeps it.
    FOR v_head IN
        SELECT o.* FROM graph_objects o
        WHERE o.tenant_id = p_tenant AND o.canonical_id = ANY (p_objects) AND o.canonical_id <> ALL (v_hidden)
          AND o.suppression > 0
        ORDER BY o.created_at, o.canonical_id, o.branch_id
    LOOP
        IF v_head.deleted_at IS NULL AND EXISTS (
            SELECT FROM graph_objects o
            WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.type = v_head.type
              AND o.key = v_head.key AND o.deleted_at IS NULL AND o.suppression = 0) THEN
            PERFORM retire_object(p_tenant, v_head.branch_id, v_head.canonical_id, p_agent, p_now);
        END IF;
        UPDATE graph_objects o SET suppression = 0
        WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.canonical_id = v_head.canonical_id;
        PERFORM queue_units(p_tenant, v_head.project_id, 'object', ARRAY[v_head.canonical_id]);
    END LOOP;
    UPDATE graph_object_versions v SET suppression = l.level FROM object_levels(p_tenant, p_objects) l
    WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
    -- Deleted rather than marked: an update of a vector costs its index as much as a new one.
    DELETE FROM embeddings x
    WHERE x.tenant_id = p_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
      AND x.owner_kind = 'object' AND x.owner_id = ANY (v_hidden);
    DELETE FROM embedding_queue q
    USING (SELECT DISTINCT v.project_id FROM graph_object_versions v
           WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_hidden)) p
    WHERE q.tenant_id = p_tenant AND q.project_id = p.project_id
      AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'object'
      AND q.owner_id = ANY (v_hidden);
END
$$;
