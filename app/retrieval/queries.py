"""SQL of the channels; each statement is one call of a function of the database."""

READ_CONTEXT = (
    "ROW(%(tenant)s, %(project)s, %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(scope)s)::read_context"
)
FACT_FILTER = (
    "ROW(%(relations)s::uuid[], %(min_confidence)s::double precision, %(min_trust)s::double precision, "
    "%(contradicted)s)::fact_filter"
)
_TERMS = "ROW(%(terms)s::text[], %(idf)s::double precision[], %(average)s::double precision)::term_query"
_VECTOR = "ROW(%(model)s::smallint, %(dimensions)s::int, %(vector)s)::vector_query"

# Notes found by their terms or their vectors, each with its neighbours, or only the notes in `wanted`.
FIND_NOTES = f"""
    SELECT find_notes({READ_CONTEXT}, %(terms)s::text[], {_VECTOR}, %(near)s, %(reach)s, %(wanted)s::uuid[]) AS found"""
# Notes that share rare names with the best ones.
FIND_LINKED_NOTES = f"""
    SELECT find_linked_notes(
        {READ_CONTEXT}, %(terms)s::text[], {_VECTOR}, %(sources)s::uuid[], %(seen)s::uuid[], %(total)s::bigint,
        %(average)s::double precision, %(reach)s, %(links)s) AS found"""
# The facts and the memory cards nearest to a vector.
FIND_NEAREST_FACTS = f"""
    SELECT ARRAY(SELECT n.owner_id::text
                 FROM nearest_units({READ_CONTEXT}, {FACT_FILTER}, {_VECTOR}, 'fact', %(near)s) n) AS facts,
           ARRAY(SELECT n.owner_id::text
                 FROM nearest_units({READ_CONTEXT}, NULL, {_VECTOR}, 'card', %(cards)s) n) AS cards"""  # noqa: S608 - no input in it
# Facts found by their terms, their vectors or along the graph.
FIND_FACTS = f"""
    SELECT find_facts(
        {READ_CONTEXT}, {FACT_FILTER}, {_TERMS}, {_VECTOR}, %(entity)s::uuid, %(lexical)s::uuid[], %(near)s::uuid[],
        %(notes)s::uuid[], %(cards)s::uuid[], %(depth)s::int, %(graph_limit)s) AS found"""
# Notes and facts that other projects share.
FIND_SHARED_NOTES = f"SELECT find_shared_notes({READ_CONTEXT}, {_TERMS}, {_VECTOR}, %(limit)s) AS found"
FIND_SHARED_FACTS = f"""
    SELECT find_shared_facts(
        {READ_CONTEXT}, {FACT_FILTER}, {_TERMS}, {_VECTOR}, %(entity)s, %(predicate)s::json, %(limit)s) AS found"""
# The vectors of notes and facts that have one, concatenated in half precision.
VECTORS = """
    SELECT array_agg(e.owner_id::text ORDER BY e.owner_id) AS ids,
           string_agg(halfvec_send(e.vector::halfvec), '' ORDER BY e.owner_id) AS vectors
    FROM embeddings e
    WHERE e.tenant_id = %(tenant)s AND e.model_id = %(model)s AND e.view = 'self'
      AND e.owner_kind IN ('note', 'fact') AND e.owner_id = ANY (%(ids)s::uuid[])"""
