-- Counts what should have a vector of the active model, what has one, and what is queued for one; zero without a model.
-- p_notes: how many live notes there are; p_least: facts with at most this confidence have no vector.
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION diagnose_vectors(
    p_tenant text, p_project text, p_notes bigint, p_least double precision, OUT embedding boolean, OUT units bigint,
    OUT vectors bigint, OUT queued bigint)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_model smallint;
BEGIN
    units := 0;
    vectors := 0;
    queued := 0;
    SELECT m.model_id INTO v_model FROM embedding_models m WHERE m.active;
    embedding := v_model IS NOT NULL;
    IF NOT embedding THEN
        RETURN;
    END IF;
    units := p_notes
        + (SELECT count(*) FROM graph_facts f
           WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.confidence > p_least AND f.suppression = 0)
        + (SELECT count(*) FROM memory_cards c
           WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.suppression = 0)
        + (SELECT count(*) FROM branches b
           JOIN graph_objects o ON o.tenant_id = p_tenant AND o.branch_id = b.branch_id
           WHERE b.tenant_id = p_tenant AND b.project_id = p_project AND b.name = 'main'
             AND o.deleted_at IS NULL AND o.suppression = 0 AND o.embed_text IS NOT NULL);
    SELECT count(*) INTO vectors FROM embeddings e
    WHERE e.tenant_id = p_tenant AND e.model_id = v_model AND e.view = 'self' AND e.project_id = p_project
      AND e.suppression = 0;
    SELECT count(*) INTO queued FROM embedding_queue q
    WHERE q.tenant_id = p_tenant AND q.project_id = p_project AND q.model_id = v_model;
END
$$;
