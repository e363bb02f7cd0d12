"""All SQL of memory cards."""

from sqlalchemy import TextClause, text

from app.cards.building import MIN_CONFIDENCE

# What the cards of an entity are made of, at these places (NULL: all).
READ_CARD_FACTS = "SELECT * FROM read_card_facts(%(entity)s::uuid, %(places)s::json)"
# Keeps what was made of it, unless something was forgotten or restored meanwhile.
STORE_CARDS = """
    SELECT store_cards(%(entity)s::uuid, %(read_at)s::timestamptz, %(places)s::json, %(cards)s::json) AS refused"""
# The places where the caller sees facts or cards of an entity.
PLACES = """
    SELECT f.scope, f.owner_key FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = %(entity)s::uuid
      AND (%(scope)s::text IS NULL OR f.scope = %(scope)s)
    UNION
    SELECT c.scope, c.owner_key FROM memory_cards c
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.entity_id = %(entity)s::uuid
      AND (%(scope)s::text IS NULL OR c.scope = %(scope)s)
    ORDER BY scope, owner_key"""

_LIVE = "f.retracted_at IS NULL AND f.valid_from <= now() AND f.valid_until > now()"
# Sure enough to be told; and trusted enough, where the project judges its sources.
_TOLD = f"""f.confidence * CASE WHEN coalesce((
        SELECT p.settings ->> 'trust_mode' FROM projects p
        WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s), 'off') = 'off'
    THEN 1 ELSE f.source_trust END >= {MIN_CONFIDENCE}"""  # noqa: S608 - a number of ours, never input
# Written, closed, weighed or taken back since the card was made; begun or ended since; in a conflict that was found or
# decided since. What was hidden or restored has taken the card with it. Of the two facts of a conflict, both of one
# place, either will do.
_CHANGED = """(
    f.updated_at >= c.built_at
    OR (f.retracted_at IS NULL AND ((f.valid_from > c.built_at AND f.valid_from <= now())
                                    OR (f.valid_until > c.built_at AND f.valid_until <= now())))
    OR EXISTS (SELECT FROM fact_conflicts k
               WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id
                 AND (k.detected_at >= c.built_at OR k.resolved_at >= c.built_at)))"""
# Cards with the names their entities have now, and what became of their facts since; in the order of the entities.
_CARDS = f"""
    SELECT c.card_id, c.entity_id, c.scope, c.garden_id, c.content, c.facts, c.omitted, c.built_at,
           c.built_at < now() - make_interval(secs => %(max_age)s) AS aged,
           e.canonical, e.kind, e.aliases, s.told, s.changed, s.divergent
    FROM (SELECT c.* FROM memory_cards c
          WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s{{where}}
          ORDER BY c.entity_id, c.card_id LIMIT %(limit)s) c
    CROSS JOIN LATERAL (
        SELECT x.canonical, x.kind,
               ARRAY(SELECT a.alias FROM graph_entity_aliases a
                     WHERE a.tenant_id = %(tenant)s AND a.entity_id = x.entity_id ORDER BY a.alias_norm) AS aliases
        FROM graph_entities x WHERE x.tenant_id = %(tenant)s AND x.entity_id = c.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.live AND f.told) AS told, coalesce(bool_or(f.changed), false) AS changed,
               coalesce(array_agg(f.fact_id ORDER BY f.updated_at DESC, f.fact_id)
                            FILTER (WHERE f.live AND f.changed), '{{{{}}}}') AS divergent
        FROM (SELECT f.fact_id, f.updated_at, {_LIVE} AS live, {_TOLD} AS told, {_CHANGED} AS changed
              FROM graph_facts f
              WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = c.entity_id
                AND f.scope = c.scope AND f.owner_key = c.owner_key OFFSET 0) f) s
    ORDER BY c.entity_id, c.card_id"""  # noqa: S608 - expressions of ours, never input
# The same for one entity, with whether there is something to tell of which there is no card; at least one row.
_OF_ENTITY = f"""
    SELECT m.missing, c.* FROM (
        SELECT EXISTS (
            SELECT FROM graph_facts f
            WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = %(entity)s::uuid
              AND {_LIVE} AND {_TOLD}{{scope}} AND NOT EXISTS (
                  SELECT FROM memory_cards x
                  WHERE x.tenant_id = %(tenant)s AND x.project_id = %(project)s AND x.entity_id = f.subject_entity_id
                    AND x.scope = f.scope AND x.owner_key = f.owner_key)) AS missing) m
    LEFT JOIN ({{cards}}) c ON true ORDER BY c.entity_id, c.card_id"""  # noqa: S608 - expressions of ours, never input
# What the cards of an entity (of one scope, of one place; NULL: of all) told at two times, as far as the caller may
# read it to this day: the facts known then (NULL: now) and valid then, with the ends and the confidence of then; and
# the cards that are kept today. Of names those of today; what was hidden since is left out for everybody.
PAST_CARD_FACTS = """
    SELECT e.entity_id, e.canonical, e.kind, coalesce(%(as_of)s::timestamptz, now()) AS known_at,
           coalesce((
        SELECT j.settings ->> 'trust_mode' FROM projects j
        WHERE j.tenant_id = %(tenant)s AND j.project_id = %(project)s), 'off') <> 'off' AS judged,
           ARRAY(
        SELECT json_build_object('scope', c.scope, 'owner_key', c.owner_key, 'card_id', c.card_id)
        FROM memory_cards c
        WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.entity_id = e.entity_id) AS kept,
           ARRAY(SELECT a.alias FROM graph_entity_aliases a
                 WHERE a.tenant_id = %(tenant)s AND a.entity_id = e.entity_id AND a.suppression = 0
                   AND a.created_at <= coalesce(%(as_of)s::timestamptz, 'infinity')
                 ORDER BY a.alias_norm) AS aliases,
           coalesce((
        SELECT json_agg(json_build_object(
            'fact_id', f.fact_id, 'scope', f.scope, 'owner_key', f.owner_key, 'garden_id', f.garden_id,
            'relation', p.canonical,
            'value', CASE WHEN f.object_entity_id IS NOT NULL THEN o.canonical
                          WHEN f.value_type = 'null' THEN 'null' ELSE left(f.object_value, 1000) END,
            'confidence', fact_confidence(
                f.fact_id, f.confidence, f.weighed_at, f.retracted_at, %(tenant)s, %(as_of)s::timestamptz),
            'source_trust', f.source_trust, 'source', f.source, 'hlc', f.hlc,
            'valid_from', to_char(f.valid_from AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            'since', to_char(f.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
            'against', ARRAY(
                SELECT k.fact_a FROM fact_conflicts k
                WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id
                  AND k.detected_at <= coalesce(%(as_of)s::timestamptz, 'infinity')
                  AND (k.resolved_at IS NULL OR k.resolved_at > coalesce(%(as_of)s::timestamptz, 'infinity'))
                ORDER BY k.fact_a)))
        FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = %(tenant)s AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = %(tenant)s AND o.entity_id = f.object_entity_id
        WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = e.entity_id
          AND (%(scope)s::text IS NULL OR f.scope = %(scope)s)
          AND (%(owner)s::text IS NULL OR f.owner_key = %(owner)s) AND f.suppression = 0
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at, %(tenant)s,
                          coalesce(%(valid_at)s::timestamptz, %(as_of)s::timestamptz, now()),
                          %(as_of)s::timestamptz)), '[]')::text AS facts
    FROM graph_entities e
    WHERE e.tenant_id = %(tenant)s AND e.project_id = %(project)s AND e.entity_id = %(entity)s::uuid
      AND e.suppression = 0 AND e.merged_into IS NULL"""
# Of whom and of which place a card is; refuses a time before the project's floor.
CARD_PLACE = """
    SELECT c.entity_id, c.scope, c.owner_key FROM memory_cards c
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.card_id = %(card)s::uuid
      AND (SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))"""
_ASKED = {
    "card": "c.card_id = %(card)s::uuid",
    "entity": "c.entity_id = %(entity)s::uuid",
    "scope": "c.scope = %(scope)s",
    "after": "(c.entity_id, c.card_id) > (%(after)s::uuid, %(after_id)s::uuid)",
}


def select_cards(asked: set[str]) -> str:
    """Cards the caller can see, for the filters that are given; of one entity always at least one row."""
    cards = _CARDS.format(where="".join(f" AND {_ASKED[name]}" for name in sorted(asked)))
    if "entity" not in asked:
        return cards
    return _OF_ENTITY.format(cards=cards, scope=" AND f.scope = %(scope)s" if "scope" in asked else "")


def limit_statements(milliseconds: int) -> TextClause:
    """No statement of this transaction takes longer."""
    return text(f"SET LOCAL statement_timeout = {milliseconds}")
