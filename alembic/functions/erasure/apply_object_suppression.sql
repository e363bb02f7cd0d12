-- Hide or restore objects and relationships by the tombstones of the entities that are bound to them or that they name
-- (see object_levels): their heads and versions on every branch, the relationships of hidden objects, their vectors and
-- their mentions. Runs with the rights of its caller (see hide_or_restore_objects).
CREATE OR REPLACE FUNCTION apply_object_suppression(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_changed uuid[];
    v_edges uuid[];
BEGIN
    -- Concurrent changes of these objects finish first; later ones see that they are hidden.
    PERFORM FROM graph_objects o
    JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_object_versions v
          WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects)) v
        ON v.branch_id = o.branch_id AND v.canonical_id = o.canonical_id
    WHERE o.tenant_id = p_tenant ORDER BY o.canonical_id, o.branch_id FOR UPDATE OF o;
    v_changed := ARRAY(
        SELECT l.id FROM object_levels(p_tenant, p_objects) l
        WHERE EXISTS (SELECT FROM graph_object_versions v
                      WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level));
    v_edges := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));
    IF cardinality(v_changed) > 0 THEN
        v_edges := v_edges || ARRAY(
            SELECT DISTINCT r.canonical_id FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (v_changed) OR r.dst_id = ANY (v_changed)));
        PERFORM suppress_objects(p_tenant, v_changed, v_agent, v_now);
    END IF;
    IF cardinality(v_edges) > 0 THEN
        PERFORM suppress_relationships(p_tenant, v_edges, v_agent, v_now);
    END IF;
    UPDATE object_entity_mentions x SET suppression = l.level FROM object_levels(p_tenant, p_objects || v_edges) l
    WHERE x.tenant_id = p_tenant AND x.canonical_id = l.id AND x.suppression <> l.level;
END
$$;
