"""SQL of recall; that of the channels is in app.retrieval.queries."""

from app.retrieval.queries import READ_CONTEXT

# The project's trust mode decides which trust is too low, so that it costs no read of its own.
_FACT_FILTER = """ROW(
        %(relations)s::uuid[], %(min_confidence)s::double precision,
        CASE WHEN coalesce(p.settings ->> 'trust_mode', 'off') <> 'off' THEN %(min_trust)s::double precision
             ELSE %(min_trust_off)s::double precision END,
        %(contradicted)s)::fact_filter"""
# The terms of a query, the best units of one kind by them, the project's settings and the time.
LOOK_UP_TERMS = f"""
    SELECT look_up_terms({READ_CONTEXT}, {_FACT_FILTER}, %(kind)s, %(query)s, %(limit)s) AS found,
           coalesce(p.settings ->> 'trust_mode', 'off') <> 'off' AS use_trust,
           p.settings -> 'pipeline' AS pipeline, clock_timestamp() AS server_time
    FROM projects p WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s"""  # noqa: S608 - no input in it
# Notes about an entity: of the newest 5,000 the best by the query's terms, then the newest.
NOTES_ABOUT = """
    SELECT n.note_id FROM notes_about(
        %(tenant)s, %(project)s, %(entity)s::uuid, %(scope)s, %(as_of)s::timestamptz, 5000) a(note_id)
    JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = a.note_id
    ORDER BY (SELECT coalesce(sum(t.idf), 0)
              FROM unnest(%(terms)s::text[], %(idf)s::double precision[]) t(term, idf)
              WHERE t.term = ANY (tsvector_to_array(
                  CASE WHEN n.updated_at > %(as_of)s::timestamptz AND n.version > 1
                       THEN note_terms_as_of(n.tenant_id, n.project_id, n.note_id, %(as_of)s::timestamptz)
                       ELSE n.terms END))) DESC, n.note_id DESC
    LIMIT 200"""
# Notes by id, as they were at a time (NULL: now).
NOTES = """
    SELECT n.note_id, coalesce(t.before ->> 'type', n.type) AS type,
           CASE WHEN t.before ? 'tags' THEN ARRAY(SELECT jsonb_array_elements_text(t.before -> 'tags'))
                ELSE n.tags END AS tags,
           n.scope, n.garden_id, n.agent_id,
           CASE WHEN t.before ? 'author' THEN t.before ->> 'author' ELSE n.author END AS author,
           coalesce((t.before ->> 'occurred_at')::timestamptz, n.occurred_at) AS occurred_at,
           n.thread_id, n.position, n.created_at, coalesce(t.content, n.content) AS content, n.suppression,
           nullif(n.project_id, %(project)s) AS other_project
    FROM unnest(%(ids)s::uuid[]) i(id)
    JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = i.id
    LEFT JOIN LATERAL note_as_of(%(tenant)s, n.note_id, %(as_of)s::timestamptz) t
        ON n.updated_at > %(as_of)s::timestamptz
    WHERE t.gone IS NOT TRUE AND (n.deleted_at IS NULL OR n.deleted_at > %(as_of)s::timestamptz)
      AND (%(as_of)s::timestamptz IS NULL OR n.created_at <= %(as_of)s::timestamptz)"""
# Notes about the entities that these words name, within a time limit.
BOOST_NOTES = """
    SELECT * FROM boost_notes(%(tenant)s, %(project)s, %(words)s::text[], %(scope)s,
                              make_interval(secs => %(milliseconds)s / 1000.0))"""
# Limit the statements of this transaction.
STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', %(milliseconds)s::text, true)"
# Facts by their hashes.
FACTS_BY_HASH = """
    SELECT f.fact_id, encode(f.fact_hash, 'hex') AS hash FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
      AND f.fact_hash = ANY (ARRAY(SELECT decode(h, 'hex') FROM unnest(%(hashes)s::text[]) h))
    ORDER BY f.created_at, f.fact_id"""
# Set the scope and store a trace, in one round trip.
RECORD_TRACE = (
    "SELECT record_trace(%s, %s, %s, %s::uuid[], %s, %s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s, %s)"
)
# One trace.
TRACE = """
    SELECT t.trace_id, t.agent_id, t.key_id, t.request, t.context, t.results, t.valid_at, t.as_of, t.created_at
    FROM recall_traces t WHERE t.tenant_id = %(tenant)s AND t.trace_id = %(trace)s::uuid"""
# Add to the access counts of facts.
COUNT_ACCESSES = "SELECT count_accesses(%(facts)s::uuid[], %(counts)s::int[], %(at)s::timestamptz)"
# Delete a batch of old traces.
CLEAR_TRACES = "SELECT clear_traces(%(days)s, %(limit)s) AS cleared"
# Index the terms of a batch of notes, facts or objects again.
REINDEX_TERMS = "SELECT reindex_terms(%(kind)s, %(after)s::uuid, %(limit)s) AS last"
