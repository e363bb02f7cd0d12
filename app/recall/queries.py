"""All SQL of recall itself; cards, the graph and embedding have their own."""

_PLACE = "%(tenant)s, %(project)s, %(terms)s::text[], %(model)s::smallint, %(dimensions)s::int, %(vector)s"

# The query's terms and the units of a kind that are best by them; what the project decides; and what time it is.
RECALL_WORDS = """
    SELECT recall_words(p.tenant_id, p.project_id, %(kind)s, %(query)s, %(limit)s, %(valid_at)s::timestamptz,
                        %(as_of)s::timestamptz, %(scope)s, %(min_confidence)s, %(min_trust)s,
                        %(contradicted)s) AS found,
           coalesce(p.settings ->> 'trust_mode', 'off') <> 'off' AS judged,
           p.settings -> 'pipeline' AS pipeline, clock_timestamp() AS told_at
    FROM projects p WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s"""
# What ranking needs of the notes a query finds.
RECALL_NOTES = (
    f"SELECT recall_notes({_PLACE}, %(near)s, %(reach)s, %(as_of)s::timestamptz, %(scope)s, "
    "%(wanted)s::uuid[]) AS found"
)
# The same of notes that share rare names with the best.
RECALL_LINKED = (
    f"SELECT recall_linked({_PLACE}, %(sources)s::uuid[], %(total)s::bigint, %(average)s::double precision, %(reach)s, "
    "%(as_of)s::timestamptz, %(scope)s, %(seen)s::uuid[], %(links)s) AS found"
)
# The facts and the cards nearest to a query.
NEAR_FACTS = """
    SELECT ARRAY(SELECT n.owner_id::text FROM near_units(
               %(tenant)s, %(project)s, 'fact', %(model)s::smallint, %(dimensions)s::int, %(vector)s, %(near)s,
               %(scope)s, %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(relations)s::uuid[],
               %(min_confidence)s::double precision, %(min_trust)s::double precision, %(contradicted)s) n) AS facts,
           ARRAY(SELECT n.owner_id::text FROM near_units(
               %(tenant)s, %(project)s, 'card', %(model)s::smallint, %(dimensions)s::int, %(vector)s, %(cards)s,
               %(scope)s) n) AS cards"""
# What ranking needs of the facts a query finds.
RECALL_FACTS = """
    SELECT recall_facts(
        %(tenant)s, %(project)s, %(terms)s::text[], %(idf)s::double precision[], %(average)s::double precision,
        %(model)s::smallint, %(vector)s, %(lexical)s::uuid[], %(near)s::uuid[], %(cards)s::uuid[], %(walked)s,
        %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(scope)s, %(entity)s::uuid, %(relations)s::uuid[],
        %(min_confidence)s::double precision, %(min_trust)s::double precision, %(depth)s::int,
        %(notes)s::uuid[], %(contradicted)s) AS found"""
# Notes about an entity: of the newest 5,000 those with the most telling of the query's terms, and then the newest.
MENTIONING = """
    SELECT n.note_id FROM notes_about(
        %(tenant)s, %(project)s, %(entity)s::uuid, %(scope)s, %(as_of)s::timestamptz, 5000) a(note_id)
    JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = a.note_id
    ORDER BY (SELECT coalesce(sum(t.idf), 0)
              FROM unnest(%(terms)s::text[], %(idf)s::double precision[]) t(term, idf)
              WHERE t.term = ANY (tsvector_to_array(
                  CASE WHEN n.updated_at > %(as_of)s::timestamptz AND n.version > 1
                       THEN note_terms_then(n.tenant_id, n.project_id, n.note_id, %(as_of)s::timestamptz)
                       ELSE n.terms END))) DESC, n.note_id DESC
    LIMIT 200"""
# Notes by their ids, each with what it said at a time (NULL: what it says).
NOTES = """
    SELECT n.note_id, coalesce(t.before ->> 'type', n.type) AS type,
           CASE WHEN t.before ? 'tags' THEN ARRAY(SELECT jsonb_array_elements_text(t.before -> 'tags'))
                ELSE n.tags END AS tags,
           n.scope, n.garden_id, n.agent_id,
           CASE WHEN t.before ? 'author' THEN t.before ->> 'author' ELSE n.author END AS author,
           coalesce((t.before ->> 'occurred_at')::timestamptz, n.occurred_at) AS occurred_at,
           n.thread_id, n.position, n.created_at, coalesce(t.content, n.content) AS content
    FROM unnest(%(ids)s::uuid[]) i(id)
    JOIN memory_notes n ON n.tenant_id = %(tenant)s AND n.note_id = i.id
    LEFT JOIN LATERAL note_as_of(%(tenant)s, n.note_id, %(as_of)s::timestamptz) t
        ON n.updated_at > %(as_of)s::timestamptz
    WHERE n.suppression = 0 AND t.gone IS NOT TRUE AND (n.deleted_at IS NULL OR n.deleted_at > %(as_of)s::timestamptz)
      AND (%(as_of)s::timestamptz IS NULL OR n.created_at <= %(as_of)s::timestamptz)"""
# Notes about the entities that words name, within a time.
BOOST_NOTES = """
    SELECT * FROM boost_notes(%(tenant)s, %(project)s, %(words)s::text[], %(scope)s,
                              make_interval(secs => %(milliseconds)s / 1000.0))"""
STATEMENT_TIMEOUT = "SELECT set_config('statement_timeout', %(milliseconds)s::text, true)"
# The vectors of units, as far as they have any, one behind the other: told apart by half as many bits as they have.
VECTORS = """
    SELECT array_agg(e.owner_id::text ORDER BY e.owner_id) AS ids,
           string_agg(halfvec_send(e.vector::halfvec), '' ORDER BY e.owner_id) AS vectors
    FROM embeddings e
    WHERE e.tenant_id = %(tenant)s AND e.model_id = %(model)s AND e.view = 'self'
      AND e.owner_kind IN ('note', 'fact') AND e.owner_id = ANY (%(ids)s::uuid[])"""
# The facts that a hash means.
BY_HASH = """
    SELECT f.fact_id, encode(f.fact_hash, 'hex') AS hash FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s
      AND f.fact_hash = ANY (ARRAY(SELECT decode(h, 'hex') FROM unnest(%(hashes)s::text[]) h))
    ORDER BY f.created_at, f.fact_id"""
# Keeps a trace: scope and line in one round trip.
RECORD_TRACE = "SELECT record_trace(%s, %s, %s, %s::uuid[], %s, %s::uuid, %s, %s::jsonb, %s::jsonb, %s::jsonb, %s, %s)"
TRACE = """
    SELECT t.trace_id, t.agent_id, t.key_id, t.request, t.context, t.results, t.valid_at, t.as_of, t.created_at
    FROM recall_traces t WHERE t.tenant_id = %(tenant)s AND t.trace_id = %(trace)s::uuid"""
COUNT_ACCESSES = "SELECT count_accesses(%(facts)s::uuid[], %(counts)s::int[], %(at)s::timestamptz)"
# Traces that have outlived their use, some at a time.
CLEAR_TRACES = "SELECT clear_traces(%(days)s, %(limit)s) AS cleared"
# Reads the words of some notes or facts anew.
REINDEX_TERMS = "SELECT reindex_terms(%(kind)s, %(after)s::uuid, %(limit)s) AS last"
