-- Writes facts, one or a thousand, in one call: finds or creates the entities and predicates they name, and places each
-- fact on its timeline. Returns a row for each, in order. When one is refused and p_atomic, nothing is written. About
-- an entity that a tombstone hides: an administrator is refused; an agent's fact is written hidden, and the result
-- looks like that of an unused name. Writes one audit event, unless p_key is NULL: then the caller writes it. Security
-- definer, because rows that a policy hides still count; the scope comes from the settings alone. The settings and each
-- OFFSET 0 keep joins lookups by key: a plan made while the tables were small would scan them whole from then on.
CREATE OR REPLACE FUNCTION write_facts(
    p_entities json, p_predicates json, p_facts json, p_evidence json, p_derived json, p_atomic boolean,
    p_key text DEFAULT '', p_admin boolean DEFAULT false)
RETURNS TABLE (
    idx int, refused text, field text, candidates uuid[], outcome text, superseded uuid[], conflicts uuid[],
    fact_id uuid, subject_id uuid, subject_name text, subject_kind text, predicate_id uuid, predicate_name text,
    predicate_status text, predicate_cardinality text, object_id uuid, object_name text, object_kind text,
    object_value text, value_type text, scope text, garden_id uuid, agent_id text, source text,
    source_trust double precision, confidence double precision, valid_from timestamptz, valid_to timestamptz,
    created_at timestamptz, closed_at timestamptz, retracted_at timestamptz, contradicted boolean, evidence uuid[],
    derived_from text[], fact_hash text, mentions int, user_id text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_sort = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_entities uuid[];
    v_states text[];
    v_ambiguous jsonb;
    v_predicates uuid[];
    v_drafts fact_draft[];
    v_accepted fact_draft[];
    v_placed fact_draft[];
    v_values text[];
    v_jsons text[];
    v_steps fact_step[] := '{}';
    v_first int;
    v_now timestamptz := clock_timestamp();
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL THEN
        RAISE EXCEPTION 'write_facts needs a scope with tenant and project' USING ERRCODE = 'insufficient_privilege';
    END IF;

    -- Check: which entities are meant, and what is refused, before anything is written.
    SELECT array_agg(r.entity_id ORDER BY r.ref), array_agg(r.state ORDER BY r.ref),
           jsonb_object_agg(r.ref, r.candidates) FILTER (WHERE r.state = 'ambiguous')
    INTO v_entities, v_states, v_ambiguous
    FROM resolve_entities(v_tenant, v_project, p_entities) r;
    SELECT c.drafts INTO v_drafts
    FROM check_drafts(v_tenant, v_project, p_predicates, p_facts, p_evidence, v_entities, v_states, p_admin, v_now) c;
    IF json_array_length(p_derived) > 0 THEN
        v_drafts := refuse_cycles(v_tenant, v_project, v_drafts, p_entities, p_predicates, p_derived, v_entities);
    END IF;
    SELECT array_agg(d ORDER BY d.idx) INTO v_accepted FROM unnest(v_drafts) d WHERE d.refused IS NULL;
    v_first := v_accepted[1].idx;

    -- Place: create new names, lock, and write with one clock that is read when nobody else can write these timelines.
    IF cardinality(v_accepted) > 0 AND NOT (p_atomic AND cardinality(v_accepted) < cardinality(v_drafts)) THEN
        v_entities := make_entities(v_tenant, v_project, p_entities, v_entities,
            ARRAY(SELECT d.s FROM unnest(v_accepted) d
                  UNION SELECT d.o FROM unnest(v_accepted) d WHERE d.o IS NOT NULL));
        v_predicates := make_predicates(v_tenant, v_project, p_predicates,
            ARRAY(SELECT DISTINCT d.p FROM unnest(v_accepted) d));
        PERFORM lock_timelines(v_tenant, v_accepted, v_entities, v_predicates);
        v_now := clock_timestamp();
        SELECT o.drafts, o.object_values, o.object_jsons INTO v_placed, v_values, v_jsons
        FROM order_drafts(v_tenant, v_accepted, v_entities, v_predicates, v_first, v_now) o;
        IF cardinality(v_placed) IS DISTINCT FROM cardinality(v_accepted)
           OR (p_admin AND EXISTS (SELECT FROM unnest(v_placed) d WHERE d.suppression > 0)) THEN
            RAISE EXCEPTION 'a name changed its meaning while this was being written' USING ERRCODE = '40001';
        END IF;
        v_steps := place_facts(v_tenant, v_project, v_agent, v_placed, v_values, v_jsons, p_evidence, p_derived);
        INSERT INTO audit_log (tenant_id, event_id, project_id, event_type, key_id, agent_id, details, created_at)
        SELECT v_tenant, make_id(), v_project, 'fact_write', p_key, v_agent, jsonb_build_object(
                   'action', 'assert', 'created', count(*) FILTER (WHERE w.is_new),
                   'reused', count(*) FILTER (WHERE NOT w.is_new AND d.confidence > 0),
                   'fact_ids', jsonb_agg(w.fact_id))
                   || CASE WHEN min(d.confidence) > 0 THEN '{}'
                           ELSE jsonb_build_object('retracted', count(*) FILTER (WHERE d.confidence = 0)) END
                   || coalesce((SELECT jsonb_build_object('predicates_created', jsonb_agg(n.new_id))
                                FROM json_to_recordset(p_predicates) AS n(ref int, new_id uuid)
                                WHERE n.new_id = v_predicates[n.ref] HAVING count(*) > 0), '{}'), v_now
        FROM unnest(v_steps) w JOIN unnest(v_placed) d ON d.idx = w.idx HAVING p_key IS NOT NULL;
    END IF;

    -- Present.
    RETURN QUERY
    SELECT * FROM present_written_facts(
        v_tenant, v_drafts, v_steps, p_entities, p_evidence, p_derived, v_ambiguous, v_first, v_now);
END
$$;
