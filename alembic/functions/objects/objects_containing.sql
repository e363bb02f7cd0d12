-- Return the ids of the live objects that have all these labels and contain these properties, newest first, before
-- p_after. Of the owner, because an index over labels or properties is not used under a policy: the caller's rights are
-- checked here by the settings, and again by the policy when the objects are read.
CREATE OR REPLACE FUNCTION objects_containing(
    p_branch uuid, p_shared uuid, p_type text, p_subtype text, p_status text, p_key text, p_labels text[],
    p_properties jsonb, p_after uuid, p_limit int)
RETURNS TABLE (canonical_id uuid)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
BEGIN
    RETURN QUERY
    SELECT o.canonical_id FROM graph_objects o
    WHERE o.tenant_id = v_tenant AND is_visible_object(o.project_id, o.suppression, v_project)
      AND o.branch_id IN (p_branch, p_shared) AND o.deleted_at IS NULL
      AND (p_type IS NULL OR o.type = p_type) AND (p_subtype IS NULL OR o.subtype = p_subtype)
      AND (p_status IS NULL OR o.status = p_status) AND (p_key IS NULL OR o.key = p_key)
      AND (p_labels IS NULL OR o.labels @> p_labels)
      AND (p_properties IS NULL OR o.properties @> p_properties)
      AND (p_after IS NULL OR o.canonical_id < p_after)
    ORDER BY o.canonical_id DESC LIMIT p_limit;
END
$$;
