-- Writes the results of an extraction: derived notes, records of proposals, the link job and the note's status.
-- Returns changed = true and writes nothing when the note is deleted or at another version than p_version.
-- p_derived and p_records: lists of DerivedNote and ProposalRecord; p_link: a LinkJob or NULL (app/notes/derived_notes.py).
-- Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION apply_extraction(
    p_tenant text, p_project text, p_note uuid, p_version int, p_model text, p_derived json, p_records json,
    p_link jsonb, OUT changed boolean, OUT created int, OUT deduped int, OUT link_job uuid, OUT waits boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_source memory_notes;
    v_now timestamptz := clock_timestamp();
    v_created uuid[] := '{}';
BEGIN
    created := 0;
    deduped := 0;
    waits := false;
    SELECT n.* INTO v_source FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.note_id = p_note AND n.project_id = p_project FOR UPDATE;
    changed := NOT FOUND OR v_source.deleted_at IS NOT NULL OR v_source.version <> p_version;
    IF changed THEN
        RETURN;
    END IF;
    IF json_array_length(p_derived) > 0 THEN
        v_created := insert_derived_notes(v_source, p_model, p_derived, v_now);
        created := cardinality(v_created);
        deduped := json_array_length(p_derived) - created;
    END IF;
    PERFORM record_proposals(v_source, p_derived, v_created, p_records, v_now);
    IF created > 0 THEN
        PERFORM queue_units(p_tenant, p_project, 'note', v_created);
    END IF;
    IF p_link IS NOT NULL THEN
        SELECT l.link_job, l.waits INTO link_job, waits FROM enqueue_link_job(v_source, p_link, v_now) l;
    END IF;
    UPDATE memory_notes n SET extraction_status = 'completed' WHERE n.tenant_id = p_tenant AND n.note_id = p_note;
END
$$;
