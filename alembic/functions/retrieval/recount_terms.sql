-- Deletes the term frequencies of a project and queues a job that counts them again, after something was hidden,
-- restored or erased, so that no score reveals it; until then terms are counted in the index. Returns how many were
-- deleted. To be called last: it waits for transactions that add units or store a count, which must not wait for this
-- one. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION recount_terms(p_tenant text, p_project text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_count bigint;
BEGIN
    -- First: a transaction that stores a count locks this row.
    INSERT INTO lexical_statistics AS s (
        tenant_id, project_id, kind, documents, total_length, added, counted_at, invalidations)
    SELECT p_tenant, p_project, k.kind, 0, 0, 0, '-infinity', 1 FROM unnest(ARRAY['fact', 'note', 'object']) k(kind)
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET counted_at = excluded.counted_at, invalidations = s.invalidations + 1;
    DELETE FROM lexical_frequencies l WHERE l.tenant_id = p_tenant AND l.project_id = p_project;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    PERFORM queue_recount(p_tenant, p_project);
    RETURN v_count;
END
$$;
