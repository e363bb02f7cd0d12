-- Hides or restores objects and relationships, as the tombstones of entities that are bound to them or that they name
-- demand (object_levels): heads and versions on every branch, relationships that start or end there, vectors and
-- mentions. An object whose key was taken meanwhile is restored as deleted, with a version that says so.
-- Runs with the rights of settle_objects.
CREATE OR REPLACE FUNCTION restore_objects(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_hidden uuid[];
    v_changed uuid[];
    v_relationships uuid[];
    v_head record;
BEGIN
    -- Writers of these objects finish first; later ones see that they are hidden.
    PERFORM FROM graph_objects o
    JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_object_versions v
          WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects)) v
        ON v.branch_id = o.branch_id AND v.canonical_id = o.canonical_id
    WHERE o.tenant_id = p_tenant ORDER BY o.canonical_id, o.branch_id FOR UPDATE OF o;
    v_changed := ARRAY(
        SELECT l.id FROM object_levels(p_tenant, p_objects) l
        WHERE EXISTS (SELECT FROM graph_object_versions v
                      WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level));
    v_relationships := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));

    -- Hidden all at once, restored one after the other.
    IF cardinality(v_changed) > 0 THEN
        v_relationships := v_relationships || ARRAY(
            SELECT DISTINCT r.canonical_id FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (v_changed) OR r.dst_id = ANY (v_changed)));
        v_hidden := ARRAY(SELECT l.id FROM object_levels(p_tenant, v_changed) l WHERE l.level > 0);
        UPDATE graph_objects o SET suppression = l.level FROM object_levels(p_tenant, v_hidden) l
        WHERE o.tenant_id = p_tenant AND o.canonical_id = l.id AND o.suppression <> l.level;
        FOR v_head IN
            SELECT o.* FROM graph_objects o
            WHERE o.tenant_id = p_tenant AND o.canonical_id = ANY (v_changed) AND o.canonical_id <> ALL (v_hidden)
              AND o.suppression > 0
            ORDER BY o.created_at, o.canonical_id, o.branch_id
        LOOP
            IF v_head.deleted_at IS NULL AND EXISTS (
                SELECT FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.type = v_head.type
                  AND o.key = v_head.key AND o.deleted_at IS NULL AND o.suppression = 0) THEN
                PERFORM retire_object(p_tenant, v_head.branch_id, v_head.canonical_id, v_agent, v_now);
            END IF;
            UPDATE graph_objects o SET suppression = 0
            WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.canonical_id = v_head.canonical_id;
            PERFORM queue_units(p_tenant, v_head.project_id, 'object', ARRAY[v_head.canonical_id]);
        END LOOP;
        UPDATE graph_object_versions v SET suppression = l.level FROM object_levels(p_tenant, v_changed) l
        WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
        -- Marking a vector as hidden would cost the index as much as making it again.
        DELETE FROM embeddings x
        WHERE x.tenant_id = p_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
          AND x.owner_kind = 'object' AND x.owner_id = ANY (v_hidden);
        DELETE FROM embedding_queue q
        USING (SELECT DISTINCT v.project_id FROM graph_object_versions v
               WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_hidden)) p
        WHERE q.tenant_id = p_tenant AND q.project_id = p.project_id
          AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'object'
          AND q.owner_id = ANY (v_hidden);
    END IF;

    IF cardinality(v_relationships) > 0 THEN
        PERFORM hide_or_restore_relationships(p_tenant, v_agent, v_relationships, v_now);
    END IF;
    UPDATE object_entity_mentions x SET suppression = l.level FROM object_levels(p_tenant, p_objects || v_relationships) l
    WHERE x.tenant_id = p_tenant AND x.canonical_id = l.id AND x.suppression <> l.level;
END
$$;
