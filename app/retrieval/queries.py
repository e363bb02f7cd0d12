"""SQL of the channels; each statement is one call of a function of the database."""

_QUERY = "%(tenant)s, %(project)s, %(terms)s::text[], %(model)s::smallint, %(dimensions)s::int, %(vector)s"

# Notes found by their words or their meaning, each with its neighbours, or only the notes in `wanted`.
FIND_NOTES = (
    f"SELECT recall_notes({_QUERY}, %(near)s, %(reach)s, %(as_of)s::timestamptz, %(scope)s, "
    "%(wanted)s::uuid[]) AS found"
)
# Notes that share rare names with the best ones.
FIND_LINKED_NOTES = (
    f"SELECT recall_linked({_QUERY}, %(sources)s::uuid[], %(total)s::bigint, %(average)s::double precision, %(reach)s, "
    "%(as_of)s::timestamptz, %(scope)s, %(seen)s::uuid[], %(links)s) AS found"
)
# The facts and the memory cards nearest to a vector.
FIND_NEAREST_FACTS = """
    SELECT ARRAY(SELECT n.owner_id::text FROM near_units(
               %(tenant)s, %(project)s, 'fact', %(model)s::smallint, %(dimensions)s::int, %(vector)s, %(near)s,
               %(scope)s, %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(relations)s::uuid[],
               %(min_confidence)s::double precision, %(min_trust)s::double precision, %(contradicted)s) n) AS facts,
           ARRAY(SELECT n.owner_id::text FROM near_units(
               %(tenant)s, %(project)s, 'card', %(model)s::smallint, %(dimensions)s::int, %(vector)s, %(cards)s,
               %(scope)s) n) AS cards"""
# Facts found by their words, their meaning or along the graph.
FIND_FACTS = """
    SELECT recall_facts(
        %(tenant)s, %(project)s, %(terms)s::text[], %(idf)s::double precision[], %(average)s::double precision,
        %(model)s::smallint, %(vector)s, %(lexical)s::uuid[], %(near)s::uuid[], %(cards)s::uuid[], %(walked)s,
        %(valid_at)s::timestamptz, %(as_of)s::timestamptz, %(scope)s, %(entity)s::uuid, %(relations)s::uuid[],
        %(min_confidence)s::double precision, %(min_trust)s::double precision, %(depth)s::int,
        %(notes)s::uuid[], %(contradicted)s) AS found"""
# The vectors of notes and facts that have one, concatenated in half precision.
VECTORS = """
    SELECT array_agg(e.owner_id::text ORDER BY e.owner_id) AS ids,
           string_agg(halfvec_send(e.vector::halfvec), '' ORDER BY e.owner_id) AS vectors
    FROM embeddings e
    WHERE e.tenant_id = %(tenant)s AND e.model_id = %(model)s AND e.view = 'self'
      AND e.owner_kind IN ('note', 'fact') AND e.owner_id = ANY (%(ids)s::uuid[])"""
