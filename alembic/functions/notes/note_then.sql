-- What was another way at a time with a note that was changed since: its words, those of its other fields that changed, as
-- they were, and whether it was deleted then. All that happened later tells it. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION note_then(p_tenant text, p_note uuid, p_known timestamptz)
RETURNS TABLE (content text, before jsonb, gone boolean)
LANGUAGE sql STABLE
AS $$
    SELECT (array_agg(h.old_content ORDER BY h.created_at, h.history_id) FILTER (WHERE h.old_content IS NOT NULL))[1],
           -- Of a field that changed more than once, the first change counts: the last that is put in.
           coalesce((
               SELECT jsonb_object_agg(b.key, b.value ORDER BY x.created_at DESC, x.history_id DESC)
               FROM memory_history x CROSS JOIN LATERAL jsonb_each(x.before) b
               WHERE x.tenant_id = p_tenant AND x.note_id = p_note AND x.created_at > p_known), '{}'),
           coalesce((array_agg(h.event ORDER BY h.created_at, h.history_id)
                         FILTER (WHERE h.event IN ('deleted', 'merged', 'recovered')))[1] = 'recovered', false)
    FROM memory_history h
    WHERE h.tenant_id = p_tenant AND h.note_id = p_note AND h.created_at > p_known
$$;
