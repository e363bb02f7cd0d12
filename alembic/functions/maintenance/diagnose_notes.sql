-- Counts the notes of a project, those deleted for longer than p_keep_days, those without search terms, and, among the newest p_sample, those whose terms are not
-- what note_terms gives now. Runs with the rights of its caller.
CREATE OR REPLACE FUNCTION diagnose_notes(
    p_tenant text, p_project text, p_now timestamptz, p_sample int, p_keep_days int, OUT notes bigint,
    OUT deleted bigint, OUT expired bigint, OUT unindexed bigint, OUT extractions bigint, OUT recoveries bigint,
    OUT sampled bigint, OUT stale bigint)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    SELECT count(*), count(*) FILTER (WHERE n.deleted_at IS NOT NULL),
           count(*) FILTER (WHERE n.deleted_at < p_now - make_interval(days => p_keep_days)),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.terms_length = 0),
           count(*) FILTER (WHERE n.deleted_at IS NULL AND n.extraction_status = 'completed')
    INTO notes, deleted, expired, unindexed, extractions FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.suppression = 0;
    SELECT count(*) INTO recoveries FROM memory_history h
    WHERE h.tenant_id = p_tenant AND h.history_id >= first_id(p_now - interval '7 days') AND h.project_id = p_project
      AND h.event = 'recovered' AND h.created_at >= p_now - interval '7 days' AND h.suppression = 0;
    SELECT count(*), count(*) FILTER (WHERE s.terms <> note_terms(
               p_tenant, p_project, s.author, s.occurred_at, s.tags, s.content))
    INTO sampled, stale FROM (
        SELECT n.terms, n.author, n.occurred_at, n.tags, n.content FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.suppression = 0 AND n.deleted_at IS NULL
          AND n.terms_length > 0
        ORDER BY n.created_at DESC, n.note_id DESC LIMIT p_sample) s;
END
$$;
