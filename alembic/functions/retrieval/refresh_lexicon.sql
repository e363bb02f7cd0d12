-- Counts the units of a kind in a project again: how many there are, how long they are, and which terms are frequent.
-- Only units that everybody in the project may read count, so that no score reveals others. Nobody waits for the count:
-- when units were hidden, restored or erased meanwhile, it is not stored, and a job counts again.
CREATE OR REPLACE FUNCTION refresh_lexicon(p_kind text, p_frequent bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_branches uuid[] := main_branches(v_tenant, v_project);
    v_invalidations bigint;
    v_added bigint;
    v_documents bigint;
    v_length bigint;
    v_terms text[];
    v_counts bigint[];
BEGIN
    -- Read first: a transaction that hides units and ends after this has increased the number when the count is stored.
    SELECT coalesce(max(s.invalidations), 0), coalesce(max(s.added), 0) INTO v_invalidations, v_added
    FROM lexical_statistics s WHERE s.tenant_id = v_tenant AND s.project_id = v_project AND s.kind = p_kind;
    SELECT count(*), coalesce(sum(d.length), 0) INTO v_documents, v_length
    FROM (
        SELECT n.terms_length AS length FROM memory_notes n
        WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
        UNION ALL
        SELECT f.terms_length FROM graph_facts f
        WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
        UNION ALL
        SELECT o.terms_length FROM graph_objects o
        WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
          AND o.deleted_at IS NULL AND o.suppression = 0
    ) d;
    SELECT array_agg(c.term), array_agg(c.documents) INTO v_terms, v_counts
    FROM (
        SELECT t.term, count(*) AS documents
        FROM (
            SELECT unnest(tsvector_to_array(n.terms)) AS term FROM memory_notes n
            WHERE p_kind = 'note' AND n.tenant_id = v_tenant AND n.project_id = v_project AND n.deleted_at IS NULL
              AND n.suppression = 0 AND n.scope <> 'agent_private' AND n.garden_id IS NULL
            UNION ALL
            SELECT unnest(tsvector_to_array(f.terms)) FROM graph_facts f
            WHERE p_kind = 'fact' AND f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL
              AND f.suppression = 0 AND f.scope <> 'agent_private' AND f.garden_id IS NULL
            UNION ALL
            SELECT unnest(tsvector_to_array(o.terms)) FROM graph_objects o
            WHERE p_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = ANY (v_branches)
              AND o.deleted_at IS NULL AND o.suppression = 0
        ) t
        GROUP BY t.term HAVING count(*) >= p_frequent
    ) c;
    -- Waits for transactions that hide units, up to here.
    INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
    VALUES (v_tenant, v_project, p_kind, v_documents, v_length, 0, clock_timestamp())
    ON CONFLICT (tenant_id, project_id, kind) DO UPDATE
    SET documents = excluded.documents, total_length = excluded.total_length, added = greatest(s.added - v_added, 0),
        counted_at = excluded.counted_at
    WHERE s.invalidations = v_invalidations;
    IF NOT FOUND THEN
        PERFORM queue_recount(v_tenant, v_project);
        RETURN;
    END IF;
    DELETE FROM lexical_frequencies l
    WHERE l.tenant_id = v_tenant AND l.project_id = v_project AND l.kind = p_kind;
    INSERT INTO lexical_frequencies (tenant_id, project_id, kind, term, documents)
    SELECT v_tenant, v_project, p_kind, u.term, u.documents FROM unnest(v_terms, v_counts) u(term, documents);
END
$$;
