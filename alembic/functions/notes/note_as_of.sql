-- Returns what differs in a note as of p_known from its current row, derived from its later history: the content, the
-- previous values of other fields (before), and whether it was deleted (gone). Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION note_as_of(p_tenant text, p_note uuid, p_known timestamptz)
RETURNS TABLE (content text, before jsonb, gone boolean)
LANGUAGE sql STABLE
AS $$
    SELECT (array_agg(h.old_content ORDER BY h.created_at, h.history_id) FILTER (WHERE h.old_content IS NOT NULL))[1],
           -- When a field changed more than once, the earliest change wins: it is aggregated last.
           coalesce((
               SELECT jsonb_object_agg(b.key, b.value ORDER BY x.created_at DESC, x.history_id DESC)
               FROM memory_history x CROSS JOIN LATERAL jsonb_each(x.before) b
               WHERE x.tenant_id = p_tenant AND x.note_id = p_note AND x.created_at > p_known), '{}'),
           coalesce((array_agg(h.event ORDER BY h.created_at, h.history_id)
                         FILTER (WHERE h.event IN ('deleted', 'merged', 'recovered')))[1] = 'recovered', false)
    FROM memory_history h
    WHERE h.tenant_id = p_tenant AND h.note_id = p_note AND h.created_at > p_known
$$;
