-- Returns whether a search for the nearest units of a kind is faster by the index than exact, and as complete. Runs
-- with the rights of its caller.
CREATE OR REPLACE FUNCTION prefers_index(p_context read_context, p_model smallint, p_kind text, p_limit int)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_vectors bigint;
    v_share double precision;
    v_user text := current_setting('app.user_id', true);
BEGIN
    -- Cards and objects are few and have no index.
    IF p_kind IN ('card', 'object') THEN
        RETURN false;
    END IF;
    SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
    INTO v_vectors FROM embedding_counts c
    WHERE c.tenant_id = p_context.tenant_id AND c.project_id = p_context.project_id AND c.model_id = p_model
      AND c.view = 'self';
    IF v_vectors IS NULL OR v_vectors <= 25000 THEN
        RETURN false;
    END IF;
    IF v_user <> '*' THEN
        -- Of a user and of all users, counted as far as an exact search is faster.
        SELECT count(*) INTO v_vectors FROM (
            SELECT FROM embeddings e
            WHERE e.tenant_id = p_context.tenant_id AND e.project_id = p_context.project_id
              AND e.user_id = ANY (ARRAY['', v_user]) AND e.model_id = p_model AND e.owner_kind = p_kind
              AND e.view = 'self'
            LIMIT 25001) c;
        IF v_vectors <= 25000 THEN
            RETURN false;
        END IF;
    END IF;
    -- The project's share of the index over the partition that has this tenant's vectors.
    SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
    FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
    WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
      AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                        WHERE e.tenant_id = p_context.tenant_id AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    -- A match found by the index costs as much as scanning fifty vectors, and more the fewer match.
    RETURN coalesce(v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share, false);
END
$$;
