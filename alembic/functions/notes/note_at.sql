-- Returns a note as it was at p_known, or no row when it did not exist or was deleted then. Only its extraction status
-- is the present one. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION note_at(p_note memory_notes, p_known timestamptz)
RETURNS SETOF memory_notes
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    v_then record;
    v_change record;
BEGIN
    IF NOT note_stands(p_note.created_at, p_note.deleted_at, p_known) THEN
        RETURN;
    END IF;
    IF p_note.version = 1 OR p_note.updated_at <= p_known THEN
        RETURN NEXT p_note;
        RETURN;
    END IF;
    SELECT t.* INTO v_then FROM note_as_of(p_note.tenant_id, p_note.note_id, p_known) t;
    IF v_then.gone THEN
        RETURN;
    END IF;
    -- Its creation and proposals that changed nothing are in the history too, without a new version.
    SELECT min(h.version) FILTER (WHERE h.created_at > p_known) AS next_version,
           max(h.created_at) FILTER (WHERE h.created_at <= p_known) AS changed_at INTO v_change
    FROM memory_history h
    WHERE h.tenant_id = p_note.tenant_id AND h.note_id = p_note.note_id AND h.event NOT IN ('created', 'none');
    RETURN NEXT jsonb_populate_record(p_note, v_then.before || jsonb_build_object(
        'content', coalesce(v_then.content, p_note.content),
        'version', coalesce(v_change.next_version - 1, p_note.version),
        'updated_at', coalesce(v_change.changed_at, p_note.created_at),
        'deleted_at', NULL));
END
$$;
