-- Whether a key of any tenant, or a platform key, has this id: for keys whose id was chosen by somebody else.
CREATE OR REPLACE FUNCTION key_id_exists(p_key_id uuid)
RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM public.api_keys a WHERE a.key_id = p_key_id)
        OR EXISTS (SELECT FROM public.platform_keys p WHERE p.key_id = p_key_id);
END
$$;
