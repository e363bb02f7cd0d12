-- Hide or restore objects and relationships by the tombstones of the entities that are bound to them or that they name,
-- where there is something to do (see apply_object_suppression). Every writer of objects or relationships calls it with
-- the ids it wrote, in the same transaction and after the heads, so that a concurrent tombstone finds them; a writer of
-- relationships locks their ends first (at least FOR KEY SHARE). Of the owner, since the caller does not see what is
-- hidden.
CREATE OR REPLACE FUNCTION hide_or_restore_objects(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
    v_ends uuid[];
BEGIN
    IF p_tenant IS DISTINCT FROM nullif(current_setting('app.tenant_id', true), '') THEN
        RAISE EXCEPTION 'hide_or_restore_objects needs the scope of the tenant'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    IF NOT EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = p_tenant) THEN
        RETURN;
    END IF;
    v_ends := ARRAY(
        SELECT x.id FROM graph_relationship_versions v CROSS JOIN LATERAL (VALUES (v.src_id), (v.dst_id)) x(id)
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));
    IF EXISTS (SELECT FROM object_levels(p_tenant, p_objects || v_ends) l WHERE l.level > 0)
       OR EXISTS (SELECT FROM graph_object_versions v
                  WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects) AND v.suppression > 0)
       OR EXISTS (SELECT FROM graph_relationship_versions v
                  WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects) AND v.suppression > 0) THEN
        PERFORM apply_object_suppression(p_tenant, p_objects);
    END IF;
END
$$;
