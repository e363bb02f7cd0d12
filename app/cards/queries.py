"""SQL of memory cards."""

from sqlalchemy import TextClause, text

from app.cards.builder import MIN_CONFIDENCE
from app.db.counts import count_query

# The facts of the cards of an entity, of these scopes and owners (NULL: all).
READ_CARD_FACTS = "SELECT * FROM read_card_facts(%(entity)s::uuid, %(places)s::json)"
# Store built cards, unless something was erased or restored in between.
STORE_CARDS = """
    SELECT store_cards(%(entity)s::uuid, %(read_at)s::timestamptz, %(places)s::json, %(cards)s::json) AS refused"""
# The scopes and owners of the facts and cards of an entity that the caller may read.
OWNERS = """
    SELECT f.scope, f.owner_key FROM graph_facts f
    WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = %(entity)s::uuid
      AND (%(scope)s::text IS NULL OR f.scope = %(scope)s)
    UNION
    SELECT c.scope, c.owner_key FROM memory_cards c
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.entity_id = %(entity)s::uuid
      AND (%(scope)s::text IS NULL OR c.scope = %(scope)s)
    ORDER BY scope, owner_key"""

_LIVE = "f.retracted_at IS NULL AND f.valid_from <= now() AND f.valid_until > now()"
# Of enough confidence for a card; times trust, where the project scores its sources.
_SHOWN = f"""f.confidence * CASE WHEN coalesce((
        SELECT p.settings ->> 'trust_mode' FROM projects p
        WHERE p.tenant_id = %(tenant)s AND p.project_id = %(project)s), 'off') = 'off'
    THEN 1 ELSE f.source_trust END >= {MIN_CONFIDENCE}"""  # noqa: S608 - a number of ours, never input
# Written, closed, changed in confidence or retracted since the card was built; became or ceased to be valid since; in a
# conflict detected or resolved since. Hiding or restoring a fact deletes the card itself. Both facts of a conflict have
# the same scope and owner, so that it is enough to look at one of them.
_CHANGED = """(
    f.updated_at >= c.built_at
    OR (f.retracted_at IS NULL AND ((f.valid_from > c.built_at AND f.valid_from <= now())
                                    OR (f.valid_until > c.built_at AND f.valid_until <= now())))
    OR EXISTS (SELECT FROM fact_conflicts k
               WHERE k.tenant_id = %(tenant)s AND k.fact_b = f.fact_id
                 AND (k.detected_at >= c.built_at OR k.resolved_at >= c.built_at)))"""
# Cards with the current names of their entities and the changes of their facts since, ordered by entity.
_CARDS = f"""
    SELECT c.card_id, c.entity_id, c.scope, c.garden_id, c.content, c.facts, c.omitted, c.built_at,
           c.built_at < now() - make_interval(secs => %(max_age)s) AS aged,
           e.canonical, e.kind, e.aliases, s.shown, s.changed, s.divergent
    FROM (SELECT c.* FROM memory_cards c
          WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s{{where}}
          ORDER BY c.entity_id, c.card_id LIMIT %(limit)s) c
    CROSS JOIN LATERAL (
        SELECT x.canonical, x.kind,
               ARRAY(SELECT a.alias FROM graph_entity_aliases a
                     WHERE a.tenant_id = %(tenant)s AND a.entity_id = x.entity_id ORDER BY a.alias_norm) AS aliases
        FROM graph_entities x WHERE x.tenant_id = %(tenant)s AND x.entity_id = c.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE f.live AND f.shown) AS shown, coalesce(bool_or(f.changed), false) AS changed,
               coalesce(array_agg(f.fact_id ORDER BY f.updated_at DESC, f.fact_id)
                            FILTER (WHERE f.live AND f.changed), '{{{{}}}}') AS divergent
        FROM (SELECT f.fact_id, f.updated_at, {_LIVE} AS live, {_SHOWN} AS shown, {_CHANGED} AS changed
              FROM graph_facts f
              WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = c.entity_id
                AND f.scope = c.scope AND f.owner_key = c.owner_key OFFSET 0) f) s
    ORDER BY c.entity_id, c.card_id"""  # noqa: S608 - expressions of ours, never input
# The same for one entity, and whether there are facts without a card; always at least one row.
_OF_ENTITY = f"""
    SELECT m.missing, c.* FROM (
        SELECT EXISTS (
            SELECT FROM graph_facts f
            WHERE f.tenant_id = %(tenant)s AND f.project_id = %(project)s AND f.subject_entity_id = %(entity)s::uuid
              AND {_LIVE} AND {_SHOWN}{{scope}} AND NOT EXISTS (
                  SELECT FROM memory_cards x
                  WHERE x.tenant_id = %(tenant)s AND x.project_id = %(project)s AND x.entity_id = f.subject_entity_id
                    AND x.scope = f.scope AND x.owner_key = f.owner_key)) AS missing) m
    LEFT JOIN ({{cards}}) c ON true ORDER BY c.entity_id, c.card_id"""  # noqa: S608 - expressions of ours, never input
# The facts of the cards of an entity (of one scope, of one owner; NULL: of all) at two times, as far as the caller may
# read them now: recorded then (NULL: now) and valid then, with the validity and confidence on record then; and the ids
# of the stored cards. Names are the current ones; what was hidden since is left out for everybody.
PAST_CARD_FACTS = """
    SELECT e.entity_id, e.canonical, e.kind, coalesce(%(as_of)s::timestamptz, now()) AS known_at,
           coalesce((
        SELECT j.settings ->> 'trust_mode' FROM projects j
        WHERE j.tenant_id = %(tenant)s AND j.project_id = %(project)s), 'off') <> 'off' AS use_trust,
           ARRAY(
        SELECT json_build_object('scope', c.scope, 'owner_key', c.owner_key, 'card_id', c.card_id)
        FROM memory_cards c
        WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.entity_id = e.entity_id) AS stored,
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
# The entity, scope and owner of a card; refuses a time before the project's retention floor.
CARD_OWNER = """
    SELECT c.entity_id, c.scope, c.owner_key FROM memory_cards c
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s AND c.card_id = %(card)s::uuid
      AND (SELECT check_as_of(%(tenant)s, %(project)s, %(as_of)s::timestamptz))"""
_COUNTED = """
    SELECT c.card_id FROM memory_cards c
    JOIN graph_entities e ON e.tenant_id = %(tenant)s AND e.entity_id = c.entity_id
    WHERE c.tenant_id = %(tenant)s AND c.project_id = %(project)s{where} LIMIT %(limit)s"""
_FILTERS = {
    "card": "c.card_id = %(card)s::uuid",
    "entity": "c.entity_id = %(entity)s::uuid",
    "scope": "c.scope = %(scope)s",
    "after": "(c.entity_id, c.card_id) > (%(after)s::uuid, %(after_id)s::uuid)",
}


def select_cards(filters: set[str]) -> str:
    """Return the statement for these filters; for one entity it always gives at least one row."""
    cards = _CARDS.format(where=_conditions(filters))
    if "entity" not in filters:
        return cards
    return _OF_ENTITY.format(cards=cards, scope=" AND f.scope = %(scope)s" if "scope" in filters else "")


def count_cards(filters: set[str]) -> str:
    """Return the statement that counts the cards for these filters."""
    return count_query(_COUNTED.format(where=_conditions(filters)))


def _conditions(filters: set[str]) -> str:
    return "".join(f" AND {_FILTERS[name]}" for name in sorted(filters))


def limit_statements(milliseconds: int) -> TextClause:
    """Return the statement that limits the others of its transaction to this time."""
    return text(f"SET LOCAL statement_timeout = {milliseconds}")
