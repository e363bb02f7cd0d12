-- Adds the kinds of added and removed vectors to the counts of a project and model. Part of store_vectors.
CREATE OR REPLACE FUNCTION count_vectors(
    p_tenant text, p_project text, p_model smallint, p_added text[], p_removed text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + n.vectors), notes = greatest(0, c.notes + n.notes),
        facts = greatest(0, c.facts + n.facts)
    FROM (
        SELECT sum(k.change) AS vectors, coalesce(sum(k.change) FILTER (WHERE k.kind = 'note'), 0) AS notes,
               coalesce(sum(k.change) FILTER (WHERE k.kind = 'fact'), 0) AS facts
        FROM (SELECT a.kind, 1 AS change FROM unnest(p_added) a(kind)
              UNION ALL
              SELECT r.kind, -1 FROM unnest(p_removed) r(kind)) k
    ) n
    WHERE n.vectors IS NOT NULL
      AND c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
END
$$;
