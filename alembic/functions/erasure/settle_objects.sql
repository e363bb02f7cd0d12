-- Hides or restores objects and relationships as the tombstones of entities that are bound to them or that they name
-- demand; restore_objects does the work.
-- Every write of objects or relationships calls it with the canonical ids just written, in the same transaction and
-- after the heads, so that a tombstone issued meanwhile covers them too; a write of a relationship first locks its ends
-- (at least FOR KEY SHARE). Usually there is nothing to do.
-- Security definer, since hidden rows are not visible to the caller; returns nothing.
CREATE OR REPLACE FUNCTION settle_objects(p_tenant text, p_objects uuid[])
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
        RAISE EXCEPTION 'settle_objects needs the scope of the tenant' USING ERRCODE = 'insufficient_privilege';
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
        PERFORM restore_objects(p_tenant, p_objects);
    END IF;
END
$$;
