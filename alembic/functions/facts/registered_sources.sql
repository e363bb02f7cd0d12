-- The sources of a project: those that administrators registered, and the service's own pipeline, which every project
-- has until an administrator registers that name differently. Inlined into its callers, whose rights it has.
CREATE OR REPLACE FUNCTION registered_sources(p_tenant text, p_project text)
RETURNS SETOF sources
LANGUAGE sql STABLE
AS $$
    SELECT s.* FROM sources s WHERE s.tenant_id = p_tenant AND s.project_id = p_project
    UNION ALL
    SELECT p.tenant_id, p.project_id, md5('source pipeline ' || p.tenant_id || '/' || p.project_id)::uuid, 'pipeline',
           'local_key', 'same_authority', '{}'::text[], false, p.created_at, p.created_at
    FROM projects p
    WHERE p.tenant_id = p_tenant AND p.project_id = p_project AND NOT EXISTS (
        SELECT FROM sources s
        WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.source = 'pipeline')
$$;
