-- Returns the facts of a project after p_after that their decay policy would retract (act `retract`) or whose confidence
-- it would lower (to `fallen`) at p_now. The most specific policy applies: relation and scope, relation, scope, all.
-- Hidden facts are left out. Plain SQL without settings, so that it is inlined; runs with the rights of its caller.
CREATE OR REPLACE FUNCTION find_decayed(p_tenant text, p_project text, p_now timestamptz, p_after uuid)
RETURNS TABLE (
    fact_id uuid, subject_entity_id uuid, predicate_id uuid, confidence double precision, policy_id uuid, mode text,
    half_life_s double precision, age double precision, fallen double precision, act text)
LANGUAGE sql STABLE
AS $$
    WITH policy AS (
        SELECT d.*, r.predicate_id AS meant,
               ARRAY(SELECT x.predicate_id FROM resolve_predicates(p_tenant, p_project, (
                         SELECT json_agg(json_build_object('ref', u.place, 'norm', u.name))
                         FROM unnest(d.exempt_relations) WITH ORDINALITY u(name, place))) x
                     WHERE x.predicate_id IS NOT NULL) AS exempt,
               (d.relation <> '*')::int * 2 + (d.scope <> '*')::int AS rank
        FROM decay_policies d
        LEFT JOIN LATERAL resolve_predicates(
            p_tenant, p_project, json_build_array(json_build_object('ref', 1, 'norm', d.relation))) r
            ON d.relation <> '*'
        WHERE d.tenant_id = p_tenant AND d.project_id = p_project
    ), judged AS (
        SELECT f.fact_id, f.subject_entity_id, f.predicate_id, f.confidence, d.policy_id, d.mode, d.ttl_s,
               d.half_life_s, d.min_confidence,
               extract(epoch FROM p_now - coalesce(f.weighed_at, f.created_at))::double precision AS age
        FROM graph_facts f
        CROSS JOIN LATERAL (
            SELECT p.* FROM policy p
            WHERE (p.relation = '*' OR p.meant = f.predicate_id) AND (p.scope = '*' OR p.scope = f.scope)
              AND f.predicate_id <> ALL (p.exempt)
            ORDER BY p.rank DESC, p.policy_id LIMIT 1
        ) d
        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL
          AND f.suppression = 0 AND f.confidence > 0 AND f.fact_id > p_after
    )
    SELECT j.fact_id, j.subject_entity_id, j.predicate_id, j.confidence, j.policy_id, j.mode, j.half_life_s, j.age,
           c.fallen, CASE WHEN j.ttl_s IS NOT NULL AND j.mode <> 'confidence' THEN 'retract' ELSE 'confidence' END
    FROM judged j
    CROSS JOIN LATERAL (
        SELECT least(j.confidence, greatest(
            j.min_confidence,
            j.confidence * exp(greatest(-700, -ln(2) * greatest(j.age, 0) / j.half_life_s)))) AS fallen
    ) c
    WHERE CASE WHEN j.ttl_s IS NOT NULL AND j.mode <> 'confidence' THEN j.age > j.ttl_s
               -- A small change waits: each change is a row of history, and waiting loses nothing.
               ELSE j.confidence - c.fallen >= 0.001 END
$$;
