-- Returns the units that are due for a model, the longest waiting first, or one unit: each with its redacted text and
-- what is stored of it. The object of a fact is redacted when its predicate is named like a secret or matches a pattern
-- of the tenant. A unit that is gone, hidden or of no more confidence than p_min has no text. Runs as the owner, since
-- private units are embedded too; the texts go to the provider only.
CREATE OR REPLACE FUNCTION read_units(
    p_model smallint, p_limit int, p_min double precision, p_patterns text[], p_characters int,
    p_owner uuid DEFAULT NULL)
RETURNS TABLE (
    owner_kind text, owner_id uuid, queued_at timestamptz, attempts int, stored_hash bytea, embedded_at timestamptz,
    author text, occurred_at timestamptz, words text, redactions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- The same words as in app/objects/drafts.py.
    c_secret CONSTANT text := 'api[ _-]?key|secret(?!ar|i[ov]|ly)|token(?!i[sz][aem])|passw(or)?d';
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_own text[] := ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = v_tenant ORDER BY r.created_at, r.pattern_id);
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    RETURN QUERY
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts, e.text_hash, e.embedded_at, a.words, u.occurred_at,
           r.words, coalesce(r.redactions, 0) + coalesce(a.redactions, 0) + coalesce(u.hidden, 0)
    FROM (
        SELECT q.* FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model AND q.available_at <= v_now
          AND (p_owner IS NULL OR q.owner_id = p_owner)
        ORDER BY q.available_at, q.owner_id LIMIT p_limit
    ) q
    LEFT JOIN LATERAL (
        SELECT n.author, n.occurred_at, n.content AS said, 0 AS hidden FROM memory_notes n
        WHERE q.owner_kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.project_id = v_project
          AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT NULL, NULL, concat_ws(' ', last_segment(s.canonical), p.canonical,
                   CASE WHEN x.hidden THEN '[REDACTED]'
                        WHEN f.object_entity_id IS NOT NULL THEN last_segment(o.canonical)
                        WHEN f.value_type = 'ref' THEN last_segment(f.object_value) ELSE f.object_value END),
               x.hidden::int
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
        CROSS JOIN LATERAL (SELECT p.canonical ~* c_secret OR p.canonical ~* ANY (v_own) AS hidden) x
        WHERE q.owner_kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.project_id = v_project
          AND f.suppression = 0 AND f.confidence > p_min
        UNION ALL
        SELECT NULL, NULL, c.content, 0 FROM memory_cards c
        WHERE q.owner_kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.project_id = v_project
          AND c.suppression = 0
        UNION ALL
        -- Objects on main.
        SELECT NULL, NULL, o.embed_text, 0 FROM graph_objects o
        WHERE q.owner_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main
          AND o.canonical_id = q.owner_id AND o.deleted_at IS NULL AND o.suppression = 0
    ) u ON true
    LEFT JOIN LATERAL redact_text(u.said, p_patterns, v_own, p_characters) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, p_patterns, v_own, p_characters) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
