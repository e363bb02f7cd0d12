"""Recall in less time and more exact: the search of the model that every installation has is planned once and finds as
many as there are; edges too little trusted are not walked; a walk begins with whom facts are about. Notes are shown as
they were, with their authors, tags and times of then. Words are found whatever accents they are written with, and in
scripts without spaces. What is unsure, hardly trusted or outdone takes nobody's place; what notes are about is told by
facts that the caller may read."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

FUNCTIONS: tuple[str, ...] = (
    r"""
CREATE OR REPLACE FUNCTION fold_words(p_text text, p_query boolean DEFAULT false)
RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- Thai, Lao, Burmese, Khmer; kana, Chinese characters and Hangul.
    v_unspaced text := '\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff'
        '\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff';
    v_text text;
BEGIN
    IF octet_length(p_text) = length(p_text) THEN
        RETURN p_text;
    END IF;
    -- Marks are taken from Latin and Greek letters alone: elsewhere they make another letter of one.
    v_text := regexp_replace(normalize(p_text, NFKD), '([A-Za-z\u0370-\u03ff])[\u0300-\u036f]+', '\1', 'g');
    v_text := translate(v_text, 'øØłŁđĐħĦıς', 'oOlLdDhHiσ');
    v_text := replace(replace(replace(replace(v_text, 'ß', 'ss'), 'æ', 'ae'), 'Æ', 'AE'), 'œ', 'oe');
    v_text := normalize(v_text, NFKC);
    IF v_text !~ ('[' || v_unspaced || ']') THEN
        RETURN v_text;
    END IF;
    RETURN (
        SELECT string_agg(CASE WHEN m.parts[1] IS NULL THEN m.parts[2] ELSE (
            -- Each with the next one beside it: to look up the next by its place would count through all before it.
            SELECT ' ' || string_agg(CASE
                       WHEN p_query AND length(m.parts[1]) > 1 THEN c.letter || c.following
                       ELSE concat_ws(' ', c.letter, c.letter || c.following) END, ' ' ORDER BY c.place) || ' '
            FROM (SELECT l.letter, l.place, lead(l.letter) OVER (ORDER BY l.place) AS following
                  FROM string_to_table(m.parts[1], NULL) WITH ORDINALITY l(letter, place)) c) END, '' ORDER BY m.place)
        FROM regexp_matches(v_text, '([' || v_unspaced || ']+)|([^' || v_unspaced || ']+)', 'g')
             WITH ORDINALITY m(parts, place));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION note_then(p_tenant text, p_note uuid, p_known timestamptz)
RETURNS TABLE (content text, before jsonb, gone boolean)
LANGUAGE sql STABLE
AS $$
    SELECT (array_agg(h.old_content ORDER BY h.created_at, h.history_id) FILTER (WHERE h.old_content IS NOT NULL))[1],
           -- Of a field that changed more than once, the first change counts: the last that is put in.
           coalesce((
               SELECT jsonb_object_agg(b.key, b.value ORDER BY x.created_at DESC, x.history_id DESC)
               FROM memory_history x CROSS JOIN LATERAL jsonb_each(x.before) b
               WHERE x.tenant_id = p_tenant AND x.note_id = p_note AND x.created_at > p_known), '{}'),
           coalesce((array_agg(h.event ORDER BY h.created_at, h.history_id)
                         FILTER (WHERE h.event IN ('deleted', 'merged', 'recovered')))[1] = 'recovered', false)
    FROM memory_history h
    WHERE h.tenant_id = p_tenant AND h.note_id = p_note AND h.created_at > p_known
$$;
""",
    """
CREATE OR REPLACE FUNCTION fact_outdone(
    p_tenant text, p_fact uuid, p_valid timestamptz, p_known timestamptz, p_confidence double precision,
    p_trust double precision)
RETURNS boolean
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    v_others uuid[] := ARRAY(
        SELECT k.fact_b FROM fact_conflicts k
        WHERE k.tenant_id = p_tenant AND k.fact_a = p_fact
          AND CASE WHEN p_known IS NULL THEN k.status = 'open'
              ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
        UNION ALL
        SELECT k.fact_a FROM fact_conflicts k
        WHERE k.tenant_id = p_tenant AND k.fact_b = p_fact
          AND CASE WHEN p_known IS NULL THEN k.status = 'open'
              ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END);
BEGIN
    RETURN cardinality(v_others) > 0 AND EXISTS (
        SELECT FROM graph_facts f
        CROSS JOIN unnest(v_others) x(id)
        CROSS JOIN LATERAL (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.fact_id = x.id
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, p_valid, p_known)
            OFFSET 0) o
        WHERE f.tenant_id = p_tenant AND f.fact_id = p_fact
          AND o.sure >= p_confidence AND o.sure * o.source_trust >= p_trust
          AND (o.sure, o.created_at) > (
              fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known), f.created_at));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION facts_of(
    p_tenant text, p_project text, p_entity uuid, p_relations uuid[], p_terms text[], p_idf double precision[],
    p_valid timestamptz, p_known timestamptz, p_scope text, p_confidence double precision, p_trust double precision,
    p_contradicted boolean)
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    -- Written out: which index serves depends on it.
    v_all text := format(
        'SELECT f.fact_id, f.created_at, f.terms FROM graph_facts f '
        'CROSS JOIN LATERAL (SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $1, $6)) '
        '    c(sure) '
        'WHERE f.tenant_id = $1 AND f.project_id = $2 AND %s AND ($4 IS NULL OR f.predicate_id = ANY ($4)) '
        '  AND f.valid_until > CASE WHEN $6 IS NULL THEN $5 ELSE ''-infinity'' END AND ($7 IS NULL OR f.scope = $7) '
        '  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at, '
        '                  $1, $5, $6) '
        '  AND c.sure > 0 AND c.sure >= $8 AND c.sure * f.source_trust >= $9',
        CASE WHEN p_entity IS NULL THEN 'f.predicate_id = ANY ($4)' ELSE 'f.subject_entity_id = $3' END);
    v_facts uuid[];
    v_best uuid[] := '{}';
BEGIN
    EXECUTE format('SELECT ARRAY(SELECT f.fact_id FROM (%s) f ORDER BY f.created_at DESC, f.fact_id LIMIT 2000)', v_all)
    INTO v_facts USING p_tenant, p_project, p_entity, p_relations, p_valid, p_known, p_scope, p_confidence, p_trust;
    IF cardinality(v_facts) = 2000 THEN
        -- Contradicted ones are told apart one after the other, until there are enough: it takes its time.
        EXECUTE format(
            'SELECT ARRAY(SELECT b.fact_id FROM ('
            '    SELECT f.fact_id FROM (%s) f ORDER BY ('
            '        SELECT coalesce(sum(t.idf), 0) FROM unnest($10, $11) t(term, idf) '
            '        WHERE t.term = ANY (tsvector_to_array(f.terms))) DESC, f.created_at DESC, f.fact_id OFFSET 0) b '
            'WHERE $12 OR NOT fact_outdone($1, b.fact_id, $5, $6, $8, $9) LIMIT 2000)', v_all)
        INTO v_best USING p_tenant, p_project, p_entity, p_relations, p_valid, p_known, p_scope, p_confidence, p_trust,
                          p_terms, p_idf, p_contradicted;
    END IF;
    RETURN v_facts || v_best;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION note_terms_then(p_tenant text, p_project text, p_note uuid, p_known timestamptz)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN (
        SELECT note_terms(
            p_tenant, p_project,
            CASE WHEN t.before ? 'author' THEN t.before ->> 'author' ELSE n.author END,
            coalesce((t.before ->> 'occurred_at')::timestamptz, n.occurred_at),
            CASE WHEN t.before ? 'tags' THEN ARRAY(SELECT jsonb_array_elements_text(t.before -> 'tags'))
                 ELSE n.tags END,
            coalesce(t.content, n.content))
        FROM memory_notes n CROSS JOIN LATERAL note_then(p_tenant, n.note_id, p_known) t
        WHERE n.tenant_id = p_tenant AND n.note_id = p_note);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION notes_about(
    p_tenant text, p_project text, p_entity uuid, p_scope text, p_known timestamptz, p_limit int)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    RETURN QUERY
    SELECT m.note_id FROM note_entity_mentions m
    WHERE m.tenant_id = p_tenant AND m.project_id = p_project AND m.entity_id = p_entity
      AND EXISTS (
          SELECT FROM memory_notes n
          WHERE n.tenant_id = p_tenant AND n.note_id = m.note_id AND n.suppression = 0
            AND (p_scope IS NULL OR n.scope = p_scope)
            AND (n.deleted_at IS NULL OR n.deleted_at > p_known) AND (p_known IS NULL OR n.created_at <= p_known)
          OFFSET 0)
      AND EXISTS (
          SELECT FROM graph_fact_evidence v
          CROSS JOIN LATERAL (
              SELECT FROM graph_facts f
              WHERE f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                AND (f.subject_entity_id = p_entity OR f.object_entity_id = p_entity)
                AND (p_known IS NULL OR f.created_at <= p_known)
              OFFSET 0) f
          WHERE v.tenant_id = p_tenant AND v.note_id = m.note_id
          OFFSET 0)
    ORDER BY m.note_id DESC LIMIT p_limit;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION boost_notes(
    p_tenant text, p_project text, p_words text[], p_scope text, p_deadline interval, OUT notes uuid[],
    OUT timed_out boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_deadline timestamptz := clock_timestamp() + p_deadline;
    v_now timestamptz := clock_timestamp();
    v_patterns text[] := ARRAY(
        SELECT '%' || regexp_replace(w, '([%_\\])', '\\\1', 'g') || '%' FROM unnest(p_words) w);
    v_entities uuid[];
    v_near uuid[] := '{}';
BEGIN
    notes := '{}';
    timed_out := false;
    v_entities := ARRAY(
        SELECT h.entity_id FROM (
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.merged_into IS NULL
              AND e.canonical_norm LIKE ANY (v_patterns)
            ORDER BY length(e.canonical_norm), e.entity_id LIMIT 200) h
        CROSS JOIN LATERAL (
            SELECT count(*) AS mentions FROM notes_about(p_tenant, p_project, h.entity_id, p_scope, NULL, 50)) m
        ORDER BY m.mentions DESC, h.entity_id LIMIT 20);
    IF clock_timestamp() < v_deadline THEN
        v_near := ARRAY(
            SELECT x.id FROM (
                SELECT n.id FROM unnest(v_entities) s(id)
                CROSS JOIN LATERAL (
                    (SELECT x.object_entity_id AS id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)
                    UNION ALL
                    (SELECT x.subject_entity_id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)) n
                WHERE n.id <> ALL (v_entities)
                GROUP BY n.id ORDER BY max(n.confidence) DESC, n.id LIMIT 50) x);
    ELSE
        timed_out := true;
    END IF;
    IF clock_timestamp() < v_deadline THEN
        notes := ARRAY(
            SELECT DISTINCT n.id FROM unnest(v_entities || v_near) s(id)
            CROSS JOIN LATERAL notes_about(p_tenant, p_project, s.id, p_scope, NULL, 200) n(id)
            ORDER BY n.id LIMIT 200);
    END IF;
    timed_out := timed_out OR clock_timestamp() >= v_deadline;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION count_telling(p_tenant text, p_project text, p_content text)
RETURNS int
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN length(to_tsvector(project_language(p_tenant, p_project),
                              regexp_replace(fold_words(p_content, true), '[^.!?。\n]+[.!]*\?+', ' ', 'g')));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_now(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT u.entity_id, u.edge_id, u.confidence
        FROM (
            (SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.confidence * x.source_trust >= p_effective
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
            UNION ALL
            (SELECT x.subject_entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.confidence * x.source_trust >= p_effective
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
        ) u
        ORDER BY u.confidence DESC, u.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_then(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_known timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT t.entity_id, t.edge_id, t.confidence
        FROM (
            SELECT u.entity_id, u.edge_id, u.source_trust,
                   coalesce(
                       CASE WHEN u.weighed_at > p_known THEN (
                           SELECT w.previous_confidence FROM fact_confidences w
                           WHERE w.tenant_id = p_tenant AND w.fact_id = u.edge_id AND w.recorded_at > p_known
                           ORDER BY w.recorded_at LIMIT 1) END,
                       CASE WHEN u.retracted_at > p_known THEN (
                           SELECT r.confidence_before FROM fact_retractions r
                           WHERE r.tenant_id = p_tenant AND r.fact_id = u.edge_id
                           ORDER BY r.retracted_at LIMIT 1) END,
                       u.confidence) AS confidence,
                   CASE WHEN u.closed_at > p_known THEN (
                       SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
                       WHERE c.tenant_id = p_tenant AND c.fact_id = u.edge_id AND c.recorded_at > p_known
                       ORDER BY c.recorded_at LIMIT 1) ELSE u.valid_until END AS ends
            FROM (
                SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until,
                       x.closed_at, x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
                UNION ALL
                SELECT x.subject_entity_id, x.edge_id, x.confidence, x.source_trust, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
            ) u OFFSET 0
        ) t
        WHERE t.confidence >= p_confidence AND t.confidence * t.source_trust >= p_effective AND t.ends > p_valid
        ORDER BY t.confidence DESC, t.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION expand_seeds(
    p_tenant text, p_project text, p_scopes text[], p_seeds uuid[], p_depth int, p_confidence double precision,
    p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[], p_cap int, p_most int)
RETURNS TABLE (
    scope text, entity_id uuid, hops int, edge_id uuid, confidence double precision, subject_id uuid, out_degree bigint,
    truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT s.scope, w.entity_id, w.hops, w.edge_id, w.confidence, w.truncated, x.subject_entity_id AS subject_id
        FROM unnest(coalesce(p_scopes, '{agent_private,project_shared,org_shared,public}')) s(scope)
        CROSS JOIN LATERAL walk_edges(
            p_tenant, p_project, s.scope, p_seeds, p_depth, 'both', NULL, p_confidence, 0, p_trust, v_valid, p_known,
            p_fans, p_cap) w
        CROSS JOIN LATERAL (
            SELECT x.subject_entity_id FROM entity_edges x
            WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id OFFSET 0) x
    ), degrees AS MATERIALIZED (
        SELECT d.scope, d.subject_id, o.out_degree
        FROM (SELECT DISTINCT r.scope, r.subject_id FROM reached r) d
        CROSS JOIN LATERAL (
            SELECT count(*) AS out_degree FROM (
                SELECT FROM entity_edges x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = d.subject_id
                  AND x.scope = d.scope AND x.created_at <= coalesce(p_known, 'infinity')
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                LIMIT p_most) e) o
    )
    SELECT r.scope, r.entity_id, r.hops, r.edge_id, r.confidence, r.subject_id, d.out_degree, r.truncated
    FROM reached r JOIN degrees d ON d.scope = r.scope AND d.subject_id = r.subject_id;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION fact_terms(p_language regconfig, p_subject text, p_predicate text, p_object text)
RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN to_tsvector(p_language, fold_words(concat_ws(' ',
        regexp_replace(regexp_replace(
            p_subject || ' ' || p_predicate, '([a-z])([A-Z])', '\1 \2', 'g'), '[_:/.-]+', ' ', 'g'),
        left(p_object, 20000))));
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION find_neighbors(
    p_tenant text, p_project text, p_entity uuid, p_name text, p_scope text, p_depth int, p_direction text,
    p_labels json, p_prefixes text[], p_confidence double precision, p_trust double precision,
    p_valid timestamptz, p_as_of timestamptz, p_pinned timestamptz, p_fans int[], p_cap int,
    p_after_hops int, p_after uuid, p_limit int)
RETURNS TABLE (
    hops int, entity_id uuid, canonical text, kind text, suppression smallint, confidence double precision,
    source_trust double precision, facts uuid[], relations text[], subjects uuid[], objects uuid[], held uuid[],
    total bigint, truncated boolean, known_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- Read after the snapshot was taken: whatever can be seen was created before.
    v_clock timestamptz := clock_timestamp();
    v_known timestamptz := coalesce(p_pinned, p_as_of);
    v_valid timestamptz := coalesce(p_valid, p_as_of, p_pinned, v_clock);
    v_roots uuid[];
    v_relations uuid[];
BEGIN
    IF p_as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, p_as_of);
    END IF;
    IF p_entity IS NOT NULL THEN
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id = p_entity);
    ELSE
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = p_name);
        IF v_roots = '{}' THEN
            v_roots := ARRAY(
                SELECT DISTINCT a.entity_id FROM graph_entity_aliases a
                WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.alias_norm = p_name);
        END IF;
    END IF;
    -- What is hidden, or was not known then, is not meant.
    v_roots := ARRAY(
        SELECT e.entity_id FROM unnest(v_roots) u(id)
        CROSS JOIN LATERAL (
            SELECT x.entity_id FROM graph_entities x
            WHERE x.tenant_id = p_tenant AND x.entity_id = u.id AND (p_as_of IS NULL OR x.created_at <= p_as_of)
            OFFSET 0) e);
    IF p_labels IS NOT NULL OR p_prefixes IS NOT NULL THEN
        v_relations := ARRAY(
            SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_labels) r
            WHERE r.predicate_id IS NOT NULL
            UNION
            SELECT p.predicate_id FROM json_to_recordset(p_labels) AS n(norm text)
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.canonical_norm = n.norm
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__')
            UNION
            SELECT p.predicate_id FROM unnest(p_prefixes) n(prefix)
            JOIN graph_predicates p ON p.tenant_id = p_tenant
                AND p.canonical_norm >= n.prefix AND p.canonical_norm < n.prefix || U&'\+10FFFF'
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__'));
    END IF;
    RETURN QUERY
    WITH walked AS MATERIALIZED (
        SELECT w.* FROM walk_edges(
            p_tenant, p_project, p_scope, v_roots, p_depth, p_direction, v_relations, p_confidence, p_trust, 0, v_valid,
            v_known, p_fans, p_cap) w
        WHERE cardinality(v_roots) = 1
    )
    SELECT 0, e.entity_id, e.canonical, e.kind, e.suppression, NULL::double precision, NULL::double precision,
           NULL::uuid[], NULL::text[], NULL::uuid[], NULL::uuid[], NULL::uuid[],
           s.total, s.truncated, least(coalesce(p_pinned, p_as_of, v_clock), v_clock)
    FROM (SELECT count(*) AS total, coalesce(bool_or(w.truncated), false) AS truncated FROM walked w) s
    CROSS JOIN unnest(v_roots) u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = u.id OFFSET 0) e
    UNION ALL
    SELECT n.hops, e.entity_id, e.canonical, e.kind, e.suppression, n.confidence,
           p.trusts[n.hops], n.path, p.relations, p.subjects, p.objects, p.held, NULL, NULL, NULL
    FROM (
        SELECT w.* FROM walked w
        WHERE p_after IS NULL OR (w.hops, w.entity_id) > (p_after_hops, p_after)
        ORDER BY w.hops, w.entity_id LIMIT p_limit
    ) n
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = n.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT array_agg(x.subject_entity_id ORDER BY f.place) AS subjects,
               array_agg(x.object_entity_id ORDER BY f.place) AS objects,
               array_agg(x.canonical ORDER BY f.place) AS relations,
               array_agg(x.source_trust ORDER BY f.place) AS trusts,
               array_agg(x.edge_id) FILTER (WHERE x.suppression > 0) AS held
        FROM unnest(n.path) WITH ORDINALITY f(edge_id, place)
        CROSS JOIN LATERAL (
            SELECT x.*, r.canonical FROM entity_edges x
            CROSS JOIN LATERAL (
                SELECT r.canonical FROM graph_predicates r
                WHERE r.tenant_id = p_tenant AND r.predicate_id = x.predicate_id OFFSET 0) r
            WHERE x.tenant_id = p_tenant AND x.edge_id = f.edge_id OFFSET 0) x
    ) p;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION kept_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_kept uuid[];
    v_hold record;
BEGIN
    v_kept := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- What came to name somebody since the hold was issued is not linked to it yet.
    FOR v_hold IN
        SELECT t.scopes, name_pattern(p_tenant, t.entity_id) AS pattern FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_kept := v_kept || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_kept)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before)))
                                    ~ v_hold.pattern)));
    END LOOP;
    RETURN v_kept;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason, h.before)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence, concat_ws(' ', o.type, o.subtype, o.key, o.title, o.status,
                       array_to_string(o.labels, ' '), o.properties, o.evidence) AS said
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(' ', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- As it is written down, so that what fields are called counts too; what JSON spells otherwise, by its values.
        WHERE normalize(lower(x.said)) ~ v_pattern
           -- In keys, addresses and names of types the words of a name are joined by something.
           OR normalize(lower(regexp_replace(x.said, '%20|[-_+./=:,;#@&|\\]+', ' ', 'g'))) ~ v_pattern
           OR (position('\' IN x.said) > 0 AND (says(x.properties, v_pattern) OR says(x.evidence, v_pattern)))
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_notes(
    p_tenant text, p_project text, p_sources uuid[], p_query text[], p_total bigint, p_average double precision,
    p_known timestamptz, p_scope text, p_limit int)
RETURNS TABLE (source_id uuid, note_id uuid, strength double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_source record;
    v_terms text[];
    v_known text[];
    v_counts bigint[];
BEGIN
    FOR v_source IN
        SELECT n.note_id, concat_ws(' ', n.author, n.content) AS said FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_sources) ORDER BY n.note_id
    LOOP
        v_terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, fold_words((
                SELECT string_agg(w.words[1], ' ') FROM regexp_matches(
                    left(v_source.said, 4000), '\m([[:upper:]][[:alnum:]''’-]*|\d{4})\M', 'g') w(words))))) t
            WHERE t.lexeme <> ALL (p_query)
            ORDER BY t.lexeme LIMIT 32);
        v_known := ARRAY(
            SELECT l.term FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_terms)
            ORDER BY l.term);
        -- What is not known to be frequent is rare, or was so when it was last counted.
        v_terms := ARRAY(SELECT t.term FROM unnest(v_terms) t(term) WHERE t.term <> ALL (v_known) ORDER BY t.term);
        v_counts := count_documents('note', v_terms, 401);
        v_terms := v_terms || v_known;
        v_counts := v_counts || ARRAY(
            SELECT l.documents FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_known)
            ORDER BY l.term);
        SELECT array_agg(c.term ORDER BY c.documents, c.term), array_agg(c.documents ORDER BY c.documents, c.term)
        INTO v_terms, v_counts
        FROM (SELECT t.term, t.documents FROM unnest(v_terms, v_counts) t(term, documents)
              WHERE t.documents BETWEEN 2 AND least(greatest(2, 0.05 * p_total), 400)
              ORDER BY t.documents, t.term LIMIT 5) c;
        CONTINUE WHEN v_terms IS NULL;
        RETURN QUERY
        SELECT v_source.note_id, m.note_id, m.score
        FROM match_notes(
            v_terms, ARRAY(SELECT ln(1 + (p_total - d + 0.5) / (d + 0.5)) ^ 2 FROM unnest(v_counts) d), v_terms,
            p_average, 1000, p_limit, p_known, p_scope) m
        WHERE m.note_id <> v_source.note_id;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION match_facts(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_valid timestamptz, p_known timestamptz, p_scope text, p_confidence double precision, p_trust double precision)
RETURNS TABLE (fact_id uuid, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_facts f
        CROSS JOIN LATERAL (
            SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, v_tenant, p_known)) c(sure)
        WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
          AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
          AND (f.suppression = 0 OR (f.suppression = 2 AND v_holds))
          AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
          AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR f.scope = p_scope)
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                          v_tenant, p_valid, p_known)
          AND c.sure > 0 AND c.sure >= p_confidence AND c.sure * f.source_trust >= p_trust
        LIMIT p_most
    )
    SELECT f.fact_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        -- It was known as early as either: who looks back finds what was said of the other.
        created_at = least(e.created_at, o.created_at), updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0,
    p_contradicted boolean DEFAULT true)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Named here so that what the function does to it ends with it.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_holds text := '';
    v_enough text := '';
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_units uuid[];
    v_cosines double precision[];
BEGIN
    -- How many of this kind there are; cards and objects are few.
    IF p_kind NOT IN ('card', 'object') THEN
        SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
        INTO v_vectors FROM embedding_counts c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    END IF;
    IF v_vectors > 25000 THEN
        -- Of the index over the part of the table that has this tenant's vectors.
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
        FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
        WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
          AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                            WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $6, $7) OFFSET 0) h';
        v_enough := ' AND h.sure >= $9 AND h.sure > 0 AND h.sure * h.source_trust >= $10'
            ' AND ($11 OR NOT fact_outdone($2, e.owner_id, $6, $7, $9, $10))';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', least(greatest(95, 3 * p_limit / 2), 400)::text, true),
                set_config('hnsw.max_scan_tuples', '40000', true), set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        IF p_model = 1 AND p_dimensions = 384 AND p_kind = 'note' AND p_known IS NULL THEN
            -- As below, for the model that every installation has: planned once and not each time, which would take a
            -- fifth of the time.
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'note' AND e.model_id = 1
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
                   array_agg(-n.distance ORDER BY n.distance, n.owner_id)
            INTO v_units, v_cosines FROM near n;
        ELSIF p_model = 1 AND p_dimensions = 384 AND p_kind = 'fact' THEN
            WITH near AS MATERIALIZED (
                SELECT e.owner_id, e.vector <#> v_query AS distance FROM embeddings e
                CROSS JOIN LATERAL (
                    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known)
                               AS sure, f.source_trust
                    FROM graph_facts f
                    WHERE f.tenant_id = p_tenant AND f.fact_id = e.owner_id
                      AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                      f.retracted_at, p_tenant, v_valid, p_known)
                    OFFSET 0) h
                WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
                  AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = 'fact' AND e.model_id = 1
                  AND h.sure >= p_confidence AND h.sure > 0 AND h.sure * h.source_trust >= p_trust
                  AND (p_contradicted
                       OR NOT fact_outdone(p_tenant, e.owner_id, v_valid, p_known, p_confidence, p_trust))
                ORDER BY e.vector::halfvec(384) <#> v_query::halfvec(384) LIMIT p_limit
            )
            SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),
                   array_agg(-n.distance ORDER BY n.distance, n.owner_id)
            INTO v_units, v_cosines FROM near n;
        ELSE
            EXECUTE format(
                'WITH near AS MATERIALIZED ('
                '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
                '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
                'SELECT array_agg(n.owner_id ORDER BY n.distance, n.owner_id),'
                '       array_agg(-n.distance ORDER BY n.distance, n.owner_id) FROM near n',
                p_dimensions, v_holds, v_mine, v_enough)
            INTO v_units, v_cosines
            USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust,
        p_contradicted;
        END IF;
        IF cardinality(v_units) = p_limit THEN
            RETURN QUERY SELECT u.unit, u.cosine FROM unnest(v_units, v_cosines) u(unit, cosine);
            RETURN;
        END IF;
        -- So little of what was met may be read that the rest is far away: then all is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    IF v_holds = '' THEN
        RETURN QUERY
        SELECT e.owner_id, -(e.vector <#> v_query) FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.view = 'self'
          AND (p_scope IS NULL OR e.scope = p_scope) AND e.owner_kind = p_kind AND e.model_id = p_model
        ORDER BY e.vector <#> v_query, e.owner_id LIMIT p_limit;
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust,
        p_contradicted;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION note_terms(
    p_tenant text, p_project text, p_author text, p_occurred_at timestamptz, p_tags text[], p_content text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(project_language(p_tenant, p_project), fold_words(concat_ws(' ',
        p_author, to_char(p_occurred_at AT TIME ZONE 'UTC', 'FMDD FMMonth YYYY'), array_to_string(p_tags, ' '),
        p_content)));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple'::regconfig ELSE project_language(p_tenant, p_project) END,
        fold_words(concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text)));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_units(p_model smallint, p_limit int, p_min double precision, p_patterns text[])
RETURNS TABLE (
    owner_kind text, owner_id uuid, queued_at timestamptz, attempts int, stored_hash bytea, embedded_at timestamptz,
    author text, occurred_at timestamptz, words text, redactions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- The words that objects have too (app/objects/drafts.py).
    c_secret CONSTANT text := 'api[ _-]?key|secret(?!ar|i[ov]|ly)|token(?!i[sz][aem])|passw(or)?d';
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_own text[] := ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = v_tenant ORDER BY r.created_at, r.pattern_id);
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    RETURN QUERY
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts, e.text_hash, e.embedded_at, a.words, u.occurred_at,
           r.words, coalesce(r.redactions, 0) + coalesce(a.redactions, 0) + coalesce(u.hidden, 0)
    FROM (
        SELECT q.* FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model AND q.available_at <= v_now
        ORDER BY q.available_at, q.owner_id LIMIT p_limit
    ) q
    LEFT JOIN LATERAL (
        SELECT n.author, n.occurred_at, n.content AS said, 0 AS hidden FROM memory_notes n
        WHERE q.owner_kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.project_id = v_project
          AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT NULL, NULL, concat_ws(' ', last_segment(s.canonical), p.canonical,
                   CASE WHEN x.hidden THEN '[REDACTED]'
                        WHEN f.object_entity_id IS NOT NULL THEN last_segment(o.canonical)
                        WHEN f.value_type = 'ref' THEN last_segment(f.object_value) ELSE f.object_value END),
               x.hidden::int
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
        CROSS JOIN LATERAL (SELECT p.canonical ~* c_secret OR p.canonical ~* ANY (v_own) AS hidden) x
        WHERE q.owner_kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.project_id = v_project
          AND f.suppression = 0 AND f.confidence > p_min
        UNION ALL
        SELECT NULL, NULL, c.content, 0 FROM memory_cards c
        WHERE q.owner_kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.project_id = v_project
          AND c.suppression = 0
        UNION ALL
        -- Of objects what stands on main.
        SELECT NULL, NULL, o.embed_text, 0 FROM graph_objects o
        WHERE q.owner_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main
          AND o.canonical_id = q.owner_id AND o.deleted_at IS NULL AND o.suppression = 0
    ) u ON true
    LEFT JOIN LATERAL redact_text(u.said, p_patterns || v_own) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, p_patterns || v_own) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_facts(
    p_tenant text, p_project text, p_terms text[], p_idf double precision[], p_average double precision,
    p_model smallint, p_vector text, p_lexical uuid[], p_near uuid[], p_cards uuid[], p_walked int, p_valid timestamptz,
    p_known timestamptz, p_scope text, p_entity uuid, p_relations uuid[], p_confidence double precision,
    p_trust double precision, p_depth int, p_notes uuid[], p_contradicted boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_scopes text[] := CASE WHEN p_scope IS NOT NULL THEN ARRAY[p_scope] END;
    v_lexical uuid[] := p_lexical;
    v_related uuid[] := '{}';
    v_seeds uuid[] := '{}';
    v_walked uuid[] := '{}';
    v_graph double precision[] := '{}';
    v_hops int[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF p_entity IS NOT NULL THEN
        v_lexical := facts_of(p_tenant, p_project, p_entity, p_relations, p_terms, p_idf, v_valid, p_known, p_scope,
                              p_confidence, p_trust, p_contradicted);
    ELSE
        IF p_relations IS NOT NULL THEN
            -- The best of all relations need not have one of these among them.
            v_related := facts_of(p_tenant, p_project, NULL, p_relations, p_terms, p_idf, v_valid, p_known, p_scope,
                                  p_confidence, p_trust, p_contradicted);
        END IF;
        IF p_depth > 0 THEN
            -- Whom the best of them are about, as far as they hold themselves; whom they lead to is a hop away.
            v_seeds := ARRAY(
                SELECT x.entity_id FROM (
                    SELECT u.entity_id, min(u.place) AS place FROM (
                        SELECT f.subject_entity_id AS entity_id, h.place
                        FROM (SELECT l.id, l.place FROM unnest(v_lexical[1:10]) WITH ORDINALITY l(id, place)
                              UNION ALL
                              SELECT l.id, l.place FROM unnest(p_near[1:10]) WITH ORDINALITY l(id, place)) h
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.source_trust,
                                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant,
                                                   p_known) AS sure
                            FROM graph_facts f
                            WHERE f.tenant_id = p_tenant AND f.fact_id = h.id
                              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                              f.retracted_at, p_tenant, v_valid, p_known)
                            OFFSET 0) f
                        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
                        UNION ALL
                        -- Whom the facts are about that cite the notes, as far as the caller may read them.
                        SELECT x.entity_id, l.place
                        FROM unnest(p_notes) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.object_entity_id FROM graph_fact_evidence v
                            CROSS JOIN LATERAL (
                                SELECT f.subject_entity_id, f.object_entity_id FROM graph_facts f
                                WHERE f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                                  AND (p_known IS NULL OR f.created_at <= p_known) OFFSET 0) f
                            WHERE v.tenant_id = p_tenant AND v.note_id = l.id OFFSET 0) f
                        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) x(entity_id)
                        WHERE x.entity_id IS NOT NULL
                        UNION ALL
                        -- What the nearest cards are about.
                        SELECT c.entity_id, l.place
                        FROM unnest(p_cards) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT c.entity_id FROM memory_cards c
                            WHERE c.tenant_id = p_tenant AND c.card_id = l.id OFFSET 0) c
                    ) u GROUP BY u.entity_id
                ) x ORDER BY x.place, x.entity_id LIMIT 20);
        END IF;
        IF cardinality(v_seeds) > 0 THEN
            SELECT array_agg(g.fact_id ORDER BY g.fact_id), array_agg(g.score ORDER BY g.fact_id),
                   array_agg(g.hops ORDER BY g.fact_id)
            INTO v_walked, v_graph, v_hops
            FROM (
                SELECT u.* FROM (
                    SELECT DISTINCT ON (f.fact_id) f.fact_id, r.score, r.hops
                    FROM (
                        SELECT w.entity_id, w.hops,
                               (1.0 / (1 + w.hops)) * w.confidence / ln(1 + greatest(w.out_degree, 1)) AS score
                        FROM expand_seeds(p_tenant, p_project, v_scopes, v_seeds, p_depth, p_confidence, p_trust,
                                          v_valid, p_known, ARRAY[20, 10], 100, 1000) w
                        UNION ALL
                        -- Where the walk starts: no edge was taken yet.
                        SELECT s.id, 0, 1 / ln(1 + greatest(d.degree, 1))
                        FROM unnest(v_seeds) s(id)
                        CROSS JOIN LATERAL (
                            SELECT count(*) AS degree FROM (
                                SELECT FROM entity_edges x
                                WHERE x.tenant_id = p_tenant AND x.project_id = p_project
                                  AND x.subject_entity_id = s.id AND (p_scope IS NULL OR x.scope = p_scope)
                                  AND x.created_at <= coalesce(p_known, 'infinity')
                                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                                LIMIT 1000) o) d
                        ORDER BY 3 DESC, 1 LIMIT 40
                    ) r
                    CROSS JOIN LATERAL (
                        SELECT f.fact_id FROM graph_facts f
                        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = r.entity_id
                          AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
                          AND (p_scope IS NULL OR f.scope = p_scope)
                          AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                          AND f.confidence * f.source_trust >= CASE WHEN p_known IS NULL THEN p_trust ELSE 0 END
                          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                          f.retracted_at, p_tenant, v_valid, p_known)
                        ORDER BY f.confidence DESC, f.fact_id DESC LIMIT 20
                    ) f
                    ORDER BY f.fact_id, r.score DESC, r.hops
                ) u ORDER BY u.score DESC, u.fact_id LIMIT p_walked
            ) g;
        END IF;
    END IF;
    RETURN (
    WITH chosen AS MATERIALIZED (
        SELECT c.id, max(c.graph) AS graph, min(c.hops) AS hops FROM (
            SELECT h.id, NULL::double precision AS graph, 0 AS hops FROM unnest(v_lexical) h(id)
            UNION ALL
            SELECT h.id, NULL, 0 FROM unnest(p_near || v_related) h(id)
            UNION ALL
            SELECT w.id, w.graph, w.hops FROM unnest(v_walked, v_graph, v_hops) w(id, graph, hops)
        ) c GROUP BY c.id
    ), stood AS MATERIALIZED (
        SELECT f.*, c.graph, c.hops FROM chosen c
        CROSS JOIN LATERAL (
            SELECT f.fact_id, f.garden_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
                   ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms,
                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = c.id AND f.project_id = p_project
              AND (p_scope IS NULL OR f.scope = p_scope)
              AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) f
        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
    )
    SELECT coalesce(json_agg(json_build_array(
           s.fact_id, coalesce(b.score, 0), e.cosine, s.graph, s.hops, s.sure, s.source_trust,
           extract(epoch FROM s.created_at), s.access_count, k.disputed, NOT k.worse,
           CASE WHEN EXISTS (SELECT FROM fact_derivations d
                             WHERE d.tenant_id = p_tenant AND d.fact_id = s.fact_id AND d.kind = 'derived')
                THEN derivation_depth(p_tenant, s.fact_id, 5) ELSE 0 END,
           s.garden_id IS NOT NULL AND EXISTS (
               SELECT FROM gardens g
               WHERE g.tenant_id = p_tenant AND g.garden_id = s.garden_id AND g.slug = 'quarantine')
           ) ORDER BY s.fact_id), '[]')::text
    FROM stood s
    LEFT JOIN (
        SELECT x.fact_id,
               sum(t.idf * x.tf * 1.9 / (x.tf + 0.9 * (0.4 + 0.6 * x.terms_length / p_average))) AS score
        FROM (
            SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
            FROM (SELECT x.fact_id, x.terms_length, unnest(x.terms) AS word FROM stood x OFFSET 0) w
        ) x
        JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = x.lexeme
        GROUP BY x.fact_id
    ) b ON b.fact_id = s.fact_id
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE v_query IS NOT NULL
          AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'fact'
          AND e.owner_id = s.fact_id
        OFFSET 0) e ON true
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS disputed,
               coalesce(bool_or((o.sure, o.created_at) > (s.sure, s.created_at)), false) AS worse
        FROM (
            SELECT k.fact_b AS other FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_a = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
            UNION ALL
            SELECT k.fact_a FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_b = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
        ) k
        LEFT JOIN LATERAL (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.fact_id = k.other
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) o ON o.sure >= p_confidence AND o.sure * o.source_trust >= p_trust
    ) k);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_notes(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_near int,
    p_reach int, p_known timestamptz, p_scope text, p_wanted uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_hits uuid[] := p_wanted;
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF v_query IS NOT NULL AND p_near > 0 THEN
        v_hits := v_hits || ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, p_near, p_scope, NULL, p_known) n);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(w.units ORDER BY h.id), '[]')::text
        FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
        CROSS JOIN LATERAL (
            SELECT n.note_id, n.thread_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
            FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.suppression = 0
              AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
              AND (p_known IS NULL OR n.created_at <= p_known) AND (p_scope IS NULL OR n.scope = p_scope)
            OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(
                       u.note_id, u.terms_length, CASE WHEN u.position IS NOT NULL THEN u.telling END,
                       ts_filter(setweight(
                           CASE WHEN u.updated_at > p_known AND u.version > 1
                                THEN note_terms_then(p_tenant, p_project, u.note_id, p_known)
                                ELSE u.terms END, 'A', p_terms), '{a}')::text,
                       e.cosine) ORDER BY u.place) AS units
            FROM (
                SELECT 0 AS place, n.note_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
                UNION ALL
                SELECT -row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) < (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) x
                UNION ALL
                SELECT row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) > (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) x
            ) u
            -- Meaning reaches two steps far (see threads.py). Asked inside: vectors are dear, and must not be read
            -- before it turns out that nobody needs them.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE v_query IS NOT NULL AND abs(u.place) <= 2
                  AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                  -- Of other words than it says, or said then, a vector tells nothing; nor of another author or time.
                  AND (u.updated_at <= least(p_known, e.embedded_at) OR NOT EXISTS (
                      SELECT FROM memory_notes o
                      CROSS JOIN LATERAL note_then(p_tenant, o.note_id, least(p_known, e.embedded_at)) t
                      WHERE o.tenant_id = p_tenant AND o.note_id = u.note_id
                        AND (coalesce(t.content, o.content) <> o.content OR t.before ?| '{author,occurred_at}')))
                OFFSET 0) e ON true
        ) w);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_words(
    p_tenant text, p_project text, p_kind text, p_query text, p_limit int, p_valid timestamptz, p_known timestamptz,
    p_scope text, p_confidence double precision, p_trust double precision, p_contradicted boolean)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_chosen text[];
    v_hits uuid[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, p_kind, p_query, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    IF p_limit > 0 THEN
        -- What stands nowhere any more may have stood somewhere then.
        v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
            SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
            ORDER BY d.place) END;
        v_chosen := choose_terms(v_terms.terms, v_looked, 2000);
        IF p_kind = 'fact' THEN
            v_hits := ARRAY(
                SELECT m.fact_id FROM match_facts(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000,
                    CASE WHEN p_contradicted THEN p_limit ELSE 4000 END, v_valid, p_known, p_scope, p_confidence,
                    p_trust) m
                -- One after the other, until there are enough.
                WHERE p_contradicted OR NOT fact_outdone(p_tenant, m.fact_id, v_valid, p_known, p_confidence, p_trust)
                LIMIT p_limit);
        ELSE
            IF p_known IS NOT NULL THEN
                -- What was changed or deleted since is found by what it said then, and no index has that.
                v_hits := ARRAY(
                    SELECT x.note_id FROM (
                        SELECT n.note_id, tsvector_to_array(
                                   note_terms_then(p_tenant, p_project, n.note_id, p_known)) AS terms
                        FROM (
                            SELECT n.note_id FROM memory_notes n
                            WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                              AND n.updated_at > p_known AND n.version > 1 AND n.suppression = 0
                              AND (p_scope IS NULL OR n.scope = p_scope)
                            ORDER BY n.updated_at DESC, n.note_id LIMIT 5000) n
                        OFFSET 0) x
                    WHERE x.terms && v_terms.terms
                    ORDER BY (SELECT sum(t.idf) FROM unnest(v_terms.terms, v_idf) t(term, idf)
                              WHERE t.term = ANY (x.terms)) DESC, x.note_id LIMIT p_limit);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, p_known, p_scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_terms.terms, 'documents', v_terms.documents, 'total', v_terms.total, 'average', v_terms.average,
        'hits', v_hits);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_terms record;
    v_idf double precision[];
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 200), v_terms.average, 1000,
                     60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 60, p_scope) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE v_query IS NOT NULL
          AND e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON true
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'),
               -- Of one that was changed meanwhile it is the vector of before.
               CASE WHEN EXISTS (
                   SELECT FROM embedding_queue q
                   WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
                     AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at <> u.queued_at)
               THEN u.queued_at ELSE v_now END,
               p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int, queued_at timestamptz)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held)
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    ), told AS (
        INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
        SELECT v_tenant, v_project, t.owner_kind, 0, 0, count(*), '-infinity' FROM stored t
        WHERE v_leads AND t.is_new AND t.owner_kind IN ('note', 'fact', 'object') GROUP BY t.owner_kind
        ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added
        RETURNING s.kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact')
    INTO v_added, v_notes, v_facts FROM stored t WHERE t.is_new;

    -- What was changed and says the same to a model has the right vector to this day.
    UPDATE embeddings e SET embedded_at = v_now
    FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, queued_at timestamptz, gone boolean)
    JOIN embedding_queue q ON q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
        AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at
    JOIN memory_notes n ON n.tenant_id = v_tenant AND n.note_id = u.id
    WHERE u.kind = 'note' AND u.place IS NULL AND u.gone IS NOT TRUE AND n.updated_at > e.embedded_at
      AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
      AND e.owner_kind = u.kind AND e.owner_id = u.id;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION walk_edges(
    p_tenant text, p_project text, p_scope text, p_seeds uuid[], p_depth int, p_direction text, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_effective double precision, p_valid timestamptz,
    p_known timestamptz, p_fans int[], p_cap int)
RETURNS TABLE (
    entity_id uuid, hops int, edge_id uuid, confidence double precision, path uuid[], truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_out boolean := p_direction <> 'in';
    v_in boolean := p_direction <> 'out';
    v_front uuid[] := p_seeds;
    v_offset int := 0;
    v_room int;
    v_new uuid[];
    v_new_parents int[];
    v_new_edges uuid[];
    v_new_confidences double precision[];
    v_hubs boolean;
    v_found uuid[] := '{}';
    v_hops int[] := '{}';
    v_parents int[] := '{}';
    v_edges uuid[] := '{}';
    v_confidences double precision[] := '{}';
    v_truncated boolean := false;
BEGIN
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_cap - cardinality(v_found);
        IF v_room = 0 THEN
            v_truncated := true;
            EXIT;
        END IF;
        -- One edge more than may be followed is asked for, and stands for all that are left out: it leads nowhere.
        -- Joins other than the lookups of edges go by hash: those by nested loops would grow with the square.
        IF p_known IS NULL THEN
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_now(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_effective, p_valid, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        ELSE
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_then(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_effective, p_valid, p_known, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        END IF;
        v_truncated := v_truncated OR coalesce(v_hubs, false) OR coalesce(cardinality(v_new), 0) > v_room;
        EXIT WHEN v_new IS NULL;
        v_front := v_new[:v_room];
        v_offset := cardinality(v_found);
        v_found := v_found || v_front;
        v_hops := v_hops || array_fill(v_level, ARRAY[cardinality(v_front)]);
        v_parents := v_parents || v_new_parents[:v_room];
        v_edges := v_edges || v_new_edges[:v_room];
        v_confidences := v_confidences || v_new_confidences[:v_room];
    END LOOP;
    RETURN QUERY
    SELECT u.entity_id, u.hops, u.edge_id, u.confidence,
           CASE u.hops WHEN 1 THEN ARRAY[u.edge_id]
                       WHEN 2 THEN ARRAY[v_edges[u.parent], u.edge_id]
                       ELSE ARRAY[v_edges[v_parents[u.parent]], v_edges[u.parent], u.edge_id] END,
           v_truncated
    FROM unnest(v_found, v_hops, v_edges, v_confidences, v_parents) u(entity_id, hops, edge_id, confidence, parent);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION weigh_terms(
    p_tenant text, p_project text, p_kind text, p_query text, p_terms int,
    OUT terms text[], OUT documents bigint[], OUT total bigint, OUT average double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_query text := fold_words(p_query, true);
    v_rare text[];
    v_counts bigint[];
    v_length bigint;
BEGIN
    SELECT s.documents, s.total_length::double precision / nullif(s.documents, 0) INTO total, average
    FROM lexical_statistics s
    WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind AND s.documents > 0;
    IF NOT FOUND THEN
        IF p_kind = 'note' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT n.terms_length FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL LIMIT 20000) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT o.terms_length FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = ANY (main_branches(p_tenant, p_project))
                  AND o.deleted_at IS NULL LIMIT 20000) d;
        ELSE
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT f.terms_length FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL LIMIT 20000) d;
        END IF;
        average := v_length::double precision / nullif(total, 0);
    END IF;
    average := greatest(coalesce(average, 1), 1);
    terms := ARRAY(
        SELECT t.lexeme FROM unnest(to_tsvector(v_language, v_query)) t
        ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    IF v_query <> p_query AND EXISTS (
        SELECT FROM jobs j
        WHERE j.tenant_id = p_tenant AND j.kind = 'reindex' AND j.project_id = p_project
          AND j.status IN ('pending', 'leased')) THEN
        -- What was not read anew yet has its words as they are written.
        terms := terms || ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, p_query)) t WHERE t.lexeme <> ALL (terms)
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    END IF;
    IF p_kind = 'object' AND EXISTS (
        SELECT FROM branches b JOIN graph_objects o ON o.tenant_id = p_tenant AND o.branch_id = b.branch_id
        WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main') THEN
        -- What belongs to no project is found by its words as they are written.
        terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector('simple', v_query)) t
            WHERE t.lexeme <> ALL (terms) AND to_tsvector(v_language, t.lexeme) <> ''::tsvector
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms) || terms;
    END IF;
    v_rare := ARRAY(
        SELECT t.term FROM unnest(terms) t(term)
        WHERE NOT EXISTS (
            SELECT FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term)
        ORDER BY t.term);
    v_counts := count_documents(p_kind, v_rare, 2000);
    documents := ARRAY(
        SELECT coalesce(l.documents, v_counts[array_position(v_rare, t.term)], 0)
        FROM unnest(terms) WITH ORDINALITY t(term, place)
        LEFT JOIN lexical_frequencies l
            ON l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term
        ORDER BY t.place);
    total := greatest(total, (SELECT max(d) FROM unnest(documents) d));
END
$$;
""",
)

OLD_FUNCTIONS: tuple[str, ...] = (
    r"""
CREATE OR REPLACE FUNCTION boost_notes(
    p_tenant text, p_project text, p_words text[], p_scope text, p_deadline interval, OUT notes uuid[],
    OUT timed_out boolean)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_deadline timestamptz := clock_timestamp() + p_deadline;
    v_now timestamptz := clock_timestamp();
    v_patterns text[] := ARRAY(
        SELECT '%' || regexp_replace(w, '([%_\\])', '\\\1', 'g') || '%' FROM unnest(p_words) w);
    v_entities uuid[];
    v_near uuid[] := '{}';
BEGIN
    notes := '{}';
    timed_out := false;
    v_entities := ARRAY(
        SELECT h.entity_id FROM (
            SELECT e.entity_id FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.merged_into IS NULL
              AND e.canonical_norm LIKE ANY (v_patterns)
            ORDER BY length(e.canonical_norm), e.entity_id LIMIT 200) h
        CROSS JOIN LATERAL (
            SELECT count(*) AS mentions FROM (
                SELECT FROM note_entity_mentions m
                WHERE m.tenant_id = p_tenant AND m.entity_id = h.entity_id LIMIT 1000) c) m
        ORDER BY m.mentions DESC, h.entity_id LIMIT 20);
    IF clock_timestamp() < v_deadline THEN
        v_near := ARRAY(
            SELECT x.id FROM (
                SELECT n.id FROM unnest(v_entities) s(id)
                CROSS JOIN LATERAL (
                    (SELECT x.object_entity_id AS id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)
                    UNION ALL
                    (SELECT x.subject_entity_id, x.confidence FROM entity_edges x
                     WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = s.id
                       AND x.retracted_at IS NULL AND x.valid_from <= v_now AND x.valid_until > v_now
                     ORDER BY x.confidence DESC, x.edge_id LIMIT 50)) n
                WHERE n.id <> ALL (v_entities)
                GROUP BY n.id ORDER BY max(n.confidence) DESC, n.id LIMIT 50) x);
    ELSE
        timed_out := true;
    END IF;
    IF clock_timestamp() < v_deadline THEN
        notes := ARRAY(
            SELECT DISTINCT n.note_id FROM unnest(v_entities || v_near) s(id)
            CROSS JOIN LATERAL (
                SELECT m.note_id FROM note_entity_mentions m
                WHERE m.tenant_id = p_tenant AND m.project_id = p_project AND m.entity_id = s.id
                ORDER BY m.note_id DESC LIMIT 200) m
            CROSS JOIN LATERAL (
                SELECT n.note_id FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.note_id = m.note_id AND n.project_id = p_project
                  AND n.deleted_at IS NULL AND n.suppression = 0 AND (p_scope IS NULL OR n.scope = p_scope)
                OFFSET 0) n
            ORDER BY n.note_id LIMIT 200);
    END IF;
    timed_out := timed_out OR clock_timestamp() >= v_deadline;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION count_telling(p_tenant text, p_project text, p_content text)
RETURNS int
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN length(to_tsvector(project_language(p_tenant, p_project),
                              regexp_replace(p_content, '[^.!?\n]+[.!]*\?+', ' ', 'g')));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_now(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT u.entity_id, u.edge_id, u.confidence
        FROM (
            (SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
            UNION ALL
            (SELECT x.subject_entity_id, x.edge_id, x.confidence FROM entity_edges x
             WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
               AND x.scope = p_scope AND x.confidence >= p_confidence AND x.source_trust >= p_trust
               AND x.retracted_at IS NULL AND x.valid_from <= p_valid AND x.valid_until > p_valid
               AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
             ORDER BY x.confidence DESC, x.edge_id DESC LIMIT p_limit)
        ) u
        ORDER BY u.confidence DESC, u.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION edges_then(
    p_tenant text, p_project text, p_scope text, p_entity uuid, p_out boolean, p_in boolean, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_known timestamptz, p_limit bigint)
RETURNS TABLE (entity_id uuid, edge_id uuid, confidence double precision, pick bigint)
LANGUAGE sql STABLE
AS $$
    SELECT k.entity_id, k.edge_id, k.confidence, row_number() OVER (ORDER BY k.confidence DESC, k.edge_id DESC)
    FROM (
        SELECT t.entity_id, t.edge_id, t.confidence
        FROM (
            SELECT u.entity_id, u.edge_id,
                   coalesce(
                       CASE WHEN u.weighed_at > p_known THEN (
                           SELECT w.previous_confidence FROM fact_confidences w
                           WHERE w.tenant_id = p_tenant AND w.fact_id = u.edge_id AND w.recorded_at > p_known
                           ORDER BY w.recorded_at LIMIT 1) END,
                       CASE WHEN u.retracted_at > p_known THEN (
                           SELECT r.confidence_before FROM fact_retractions r
                           WHERE r.tenant_id = p_tenant AND r.fact_id = u.edge_id
                           ORDER BY r.retracted_at LIMIT 1) END,
                       u.confidence) AS confidence,
                   CASE WHEN u.closed_at > p_known THEN (
                       SELECT coalesce(c.previous_valid_to, 'infinity') FROM fact_closings c
                       WHERE c.tenant_id = p_tenant AND c.fact_id = u.edge_id AND c.recorded_at > p_known
                       ORDER BY c.recorded_at LIMIT 1) ELSE u.valid_until END AS ends
            FROM (
                SELECT x.object_entity_id AS entity_id, x.edge_id, x.confidence, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_out AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.object_entity_id <> p_entity
                UNION ALL
                SELECT x.subject_entity_id, x.edge_id, x.confidence, x.valid_until, x.closed_at,
                       x.retracted_at, x.weighed_at
                FROM entity_edges x
                WHERE p_in AND x.tenant_id = p_tenant AND x.project_id = p_project AND x.object_entity_id = p_entity
                  AND x.scope = p_scope AND x.source_trust >= p_trust AND x.created_at <= p_known
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= p_valid AND (x.valid_until > p_valid OR x.closed_at > p_known)
                  AND (p_relations IS NULL OR x.predicate_id = ANY (p_relations)) AND x.subject_entity_id <> p_entity
            ) u OFFSET 0
        ) t
        WHERE t.confidence >= p_confidence AND t.ends > p_valid
        ORDER BY t.confidence DESC, t.edge_id DESC LIMIT p_limit
    ) k
$$;
""",
    """
CREATE OR REPLACE FUNCTION expand_seeds(
    p_tenant text, p_project text, p_scopes text[], p_seeds uuid[], p_depth int, p_confidence double precision,
    p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[], p_cap int, p_most int)
RETURNS TABLE (
    scope text, entity_id uuid, hops int, edge_id uuid, confidence double precision, subject_id uuid, out_degree bigint,
    truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
BEGIN
    RETURN QUERY
    WITH reached AS MATERIALIZED (
        SELECT s.scope, w.entity_id, w.hops, w.edge_id, w.confidence, w.truncated, x.subject_entity_id AS subject_id
        FROM unnest(coalesce(p_scopes, '{agent_private,project_shared,org_shared,public}')) s(scope)
        CROSS JOIN LATERAL walk_edges(
            p_tenant, p_project, s.scope, p_seeds, p_depth, 'both', NULL, p_confidence, p_trust, v_valid, p_known,
            p_fans, p_cap) w
        CROSS JOIN LATERAL (
            SELECT x.subject_entity_id FROM entity_edges x
            WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id OFFSET 0) x
    ), degrees AS MATERIALIZED (
        SELECT d.scope, d.subject_id, o.out_degree
        FROM (SELECT DISTINCT r.scope, r.subject_id FROM reached r) d
        CROSS JOIN LATERAL (
            SELECT count(*) AS out_degree FROM (
                SELECT FROM entity_edges x
                WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.subject_entity_id = d.subject_id
                  AND x.scope = d.scope AND x.created_at <= coalesce(p_known, 'infinity')
                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                LIMIT p_most) e) o
    )
    SELECT r.scope, r.entity_id, r.hops, r.edge_id, r.confidence, r.subject_id, d.out_degree, r.truncated
    FROM reached r JOIN degrees d ON d.scope = r.scope AND d.subject_id = r.subject_id;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION fact_terms(p_language regconfig, p_subject text, p_predicate text, p_object text)
RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
    RETURN to_tsvector(p_language, concat_ws(' ',
        regexp_replace(regexp_replace(
            p_subject || ' ' || p_predicate, '([a-z])([A-Z])', '\1 \2', 'g'), '[_:/.-]+', ' ', 'g'),
        left(p_object, 20000)));
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION find_neighbors(
    p_tenant text, p_project text, p_entity uuid, p_name text, p_scope text, p_depth int, p_direction text,
    p_labels json, p_prefixes text[], p_confidence double precision, p_trust double precision,
    p_valid timestamptz, p_as_of timestamptz, p_pinned timestamptz, p_fans int[], p_cap int,
    p_after_hops int, p_after uuid, p_limit int)
RETURNS TABLE (
    hops int, entity_id uuid, canonical text, kind text, suppression smallint, confidence double precision,
    source_trust double precision, facts uuid[], relations text[], subjects uuid[], objects uuid[], held uuid[],
    total bigint, truncated boolean, known_at timestamptz)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- Read after the snapshot was taken: whatever can be seen was created before.
    v_clock timestamptz := clock_timestamp();
    v_known timestamptz := coalesce(p_pinned, p_as_of);
    v_valid timestamptz := coalesce(p_valid, p_as_of, p_pinned, v_clock);
    v_roots uuid[];
    v_relations uuid[];
BEGIN
    IF p_as_of IS NOT NULL THEN
        PERFORM check_as_of(p_tenant, p_project, p_as_of);
    END IF;
    IF p_entity IS NOT NULL THEN
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.entity_id = p_entity);
    ELSE
        v_roots := ARRAY(
            SELECT coalesce(e.merged_into, e.entity_id) FROM graph_entities e
            WHERE e.tenant_id = p_tenant AND e.project_id = p_project AND e.canonical_norm = p_name);
        IF v_roots = '{}' THEN
            v_roots := ARRAY(
                SELECT DISTINCT a.entity_id FROM graph_entity_aliases a
                WHERE a.tenant_id = p_tenant AND a.project_id = p_project AND a.alias_norm = p_name);
        END IF;
    END IF;
    -- What is hidden, or was not known then, is not meant.
    v_roots := ARRAY(
        SELECT e.entity_id FROM unnest(v_roots) u(id)
        CROSS JOIN LATERAL (
            SELECT x.entity_id FROM graph_entities x
            WHERE x.tenant_id = p_tenant AND x.entity_id = u.id AND (p_as_of IS NULL OR x.created_at <= p_as_of)
            OFFSET 0) e);
    IF p_labels IS NOT NULL OR p_prefixes IS NOT NULL THEN
        v_relations := ARRAY(
            SELECT r.predicate_id FROM resolve_predicates(p_tenant, p_project, p_labels) r
            WHERE r.predicate_id IS NOT NULL
            UNION
            SELECT p.predicate_id FROM json_to_recordset(p_labels) AS n(norm text)
            JOIN graph_predicates p ON p.tenant_id = p_tenant AND p.canonical_norm = n.norm
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__')
            UNION
            SELECT p.predicate_id FROM unnest(p_prefixes) n(prefix)
            JOIN graph_predicates p ON p.tenant_id = p_tenant
                AND p.canonical_norm >= n.prefix AND p.canonical_norm < n.prefix || U&'\+10FFFF'
                AND p.scope_key IN (p_tenant || ':' || p_project, p_tenant || ':*', '__global__'));
    END IF;
    RETURN QUERY
    WITH walked AS MATERIALIZED (
        SELECT w.* FROM walk_edges(
            p_tenant, p_project, p_scope, v_roots, p_depth, p_direction, v_relations, p_confidence, p_trust, v_valid,
            v_known, p_fans, p_cap) w
        WHERE cardinality(v_roots) = 1
    )
    SELECT 0, e.entity_id, e.canonical, e.kind, e.suppression, NULL::double precision, NULL::double precision,
           NULL::uuid[], NULL::text[], NULL::uuid[], NULL::uuid[], NULL::uuid[],
           s.total, s.truncated, least(coalesce(p_pinned, p_as_of, v_clock), v_clock)
    FROM (SELECT count(*) AS total, coalesce(bool_or(w.truncated), false) AS truncated FROM walked w) s
    CROSS JOIN unnest(v_roots) u(id)
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = u.id OFFSET 0) e
    UNION ALL
    SELECT n.hops, e.entity_id, e.canonical, e.kind, e.suppression, n.confidence,
           p.trusts[n.hops], n.path, p.relations, p.subjects, p.objects, p.held, NULL, NULL, NULL
    FROM (
        SELECT w.* FROM walked w
        WHERE p_after IS NULL OR (w.hops, w.entity_id) > (p_after_hops, p_after)
        ORDER BY w.hops, w.entity_id LIMIT p_limit
    ) n
    CROSS JOIN LATERAL (
        SELECT x.* FROM graph_entities x WHERE x.tenant_id = p_tenant AND x.entity_id = n.entity_id OFFSET 0) e
    CROSS JOIN LATERAL (
        SELECT array_agg(x.subject_entity_id ORDER BY f.place) AS subjects,
               array_agg(x.object_entity_id ORDER BY f.place) AS objects,
               array_agg(x.canonical ORDER BY f.place) AS relations,
               array_agg(x.source_trust ORDER BY f.place) AS trusts,
               array_agg(x.edge_id) FILTER (WHERE x.suppression > 0) AS held
        FROM unnest(n.path) WITH ORDINALITY f(edge_id, place)
        CROSS JOIN LATERAL (
            SELECT x.*, r.canonical FROM entity_edges x
            CROSS JOIN LATERAL (
                SELECT r.canonical FROM graph_predicates r
                WHERE r.tenant_id = p_tenant AND r.predicate_id = x.predicate_id OFFSET 0) r
            WHERE x.tenant_id = p_tenant AND x.edge_id = f.edge_id OFFSET 0) x
    ) p;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION kept_notes(p_tenant text, p_project text, p_notes uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_kept uuid[];
    v_hold record;
BEGIN
    v_kept := ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes)
          AND (n.suppression <> 0
               OR EXISTS (
                   SELECT FROM note_entity_mentions m
                   JOIN graph_entities e ON e.tenant_id = p_tenant AND e.entity_id = m.entity_id
                   WHERE m.tenant_id = p_tenant AND m.note_id = n.note_id
                     AND hidden_level(e.erased_scopes, e.held_scopes, n.scope) <> 0)
               OR EXISTS (
                   SELECT FROM graph_fact_evidence v
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id = v.fact_id
                   WHERE v.tenant_id = p_tenant AND v.note_id = n.note_id
                     AND (f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM graph_fact_supersessions s
                   JOIN graph_facts f ON f.tenant_id = p_tenant AND f.fact_id IN (s.from_fact_id, s.to_fact_id)
                   WHERE s.tenant_id = p_tenant AND s.note_id = n.note_id
                     AND (s.suppression <> 0 OR f.suppression <> 0 OR is_held(p_tenant, f.fact_id)))
               OR EXISTS (
                   SELECT FROM memory_reviews r
                   WHERE r.tenant_id = p_tenant AND n.note_id IN (r.note_id, r.target_note_id)
                     AND r.suppression <> 0)
               OR EXISTS (
                   SELECT FROM document_notes d
                   JOIN documents o ON o.tenant_id = p_tenant AND o.document_id = d.document_id
                   WHERE d.tenant_id = p_tenant AND d.note_id = n.note_id
                     AND (d.suppression <> 0 OR o.suppression <> 0))));
    -- What came to name somebody since the hold was issued is not linked to it yet.
    FOR v_hold IN
        SELECT t.scopes, name_pattern(p_tenant, t.entity_id) AS pattern FROM tombstones t
        WHERE t.tenant_id = p_tenant AND t.project_id = p_project AND t.legal_hold AND t.named
          AND NOT EXISTS (SELECT FROM tombstone_revocations r
                          WHERE r.tenant_id = p_tenant AND r.tombstone_id = t.tombstone_id)
    LOOP
        v_kept := v_kept || ARRAY(
            SELECT n.note_id FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_notes) AND n.note_id <> ALL (v_kept)
              AND (v_hold.scopes IS NULL OR n.scope = ANY (v_hold.scopes))
              AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
                       ~ v_hold.pattern
                   OR EXISTS (SELECT FROM memory_history h
                              WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                                AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                                    ~ v_hold.pattern)));
    END LOOP;
    RETURN v_kept;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_mentions(p_tenant text, p_project text, p_entity uuid, p_scopes text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_pattern text := name_pattern(p_tenant, p_entity);
    v_now timestamptz := clock_timestamp();
BEGIN
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, n.note_id, p_entity, v_now, true
    FROM memory_notes n
    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', n.content, n.author, n.thread_id, array_to_string(n.tags, ' '))))
               ~ v_pattern
           OR EXISTS (SELECT FROM memory_history h
                      WHERE h.tenant_id = p_tenant AND h.note_id = n.note_id
                        AND normalize(lower(concat_ws(' ', h.old_content, h.new_content, h.reason)))
                            ~ v_pattern))
    ON CONFLICT DO NOTHING;
    WITH RECURSIVE derived AS (
        SELECT n.note_id FROM note_entity_mentions m
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = m.note_id
        WHERE m.tenant_id = p_tenant AND m.entity_id = p_entity
          AND (p_scopes IS NULL OR n.scope = ANY (p_scopes))
        UNION
        SELECT n.note_id FROM derived d
        JOIN memory_notes n ON n.tenant_id = p_tenant AND n.derived_from = d.note_id
        WHERE p_scopes IS NULL OR n.scope = ANY (p_scopes)
    )
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, by_name)
    SELECT p_tenant, p_project, d.note_id, p_entity, v_now, true FROM derived d
    ON CONFLICT DO NOTHING;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at)
    SELECT p_tenant, p_project, d.document_id, p_entity, v_now
    FROM documents d
    WHERE d.tenant_id = p_tenant AND d.project_id = p_project AND (p_scopes IS NULL OR d.scope = ANY (p_scopes))
      AND (normalize(lower(concat_ws(' ', d.title, d.source_url, d.author, d.error, array_to_string(d.tags, ' '))))
               ~ v_pattern
           -- In addresses the words of a name are joined by something.
           OR normalize(lower(regexp_replace(d.source_url, '%20|[-_+./=]', ' ', 'g'))) ~ v_pattern
           OR normalize(lower(spelled_bytes(d.raw_content))) ~ v_pattern)
    ON CONFLICT DO NOTHING;
    INSERT INTO graph_fact_mentions (tenant_id, project_id, fact_id, entity_id, created_at)
    SELECT p_tenant, p_project, f.fact_id, p_entity, v_now
    FROM graph_facts f
    WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND (p_scopes IS NULL OR f.scope = ANY (p_scopes))
      AND f.object_value IS NOT NULL AND f.subject_entity_id <> p_entity
      AND normalize(lower(f.object_value)) ~ v_pattern
    ON CONFLICT DO NOTHING;
    IF p_scopes IS NULL OR 'project_shared' = ANY (p_scopes) THEN
        INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at)
        SELECT DISTINCT p_tenant, p_project, x.canonical_id, p_entity, v_now
        FROM (
            SELECT o.canonical_id, o.properties, o.evidence, concat_ws(' ', o.type, o.subtype, o.key, o.title, o.status,
                       array_to_string(o.labels, ' '), o.properties, o.evidence) AS said
            FROM graph_object_versions o WHERE o.tenant_id = p_tenant AND o.project_id = p_project
            UNION ALL
            SELECT r.canonical_id, r.properties, r.evidence,
                   concat_ws(' ', r.type, r.role_src, r.role_dst, r.properties, r.evidence)
            FROM graph_relationship_versions r WHERE r.tenant_id = p_tenant AND r.project_id = p_project
        ) x
        -- As it is written down, so that what fields are called counts too; what JSON spells otherwise, by its values.
        WHERE normalize(lower(x.said)) ~ v_pattern
           -- In keys, addresses and names of types the words of a name are joined by something.
           OR normalize(lower(regexp_replace(x.said, '%20|[-_+./=:,;#@&|\\]+', ' ', 'g'))) ~ v_pattern
           OR (position('\' IN x.said) > 0 AND (says(x.properties, v_pattern) OR says(x.evidence, v_pattern)))
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;
""",
    r"""
CREATE OR REPLACE FUNCTION link_notes(
    p_tenant text, p_project text, p_sources uuid[], p_query text[], p_total bigint, p_average double precision,
    p_known timestamptz, p_scope text, p_limit int)
RETURNS TABLE (source_id uuid, note_id uuid, strength double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_source record;
    v_terms text[];
    v_known text[];
    v_counts bigint[];
BEGIN
    FOR v_source IN
        SELECT n.note_id, concat_ws(' ', n.author, n.content) AS said FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = ANY (p_sources) ORDER BY n.note_id
    LOOP
        v_terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector(v_language, (
                SELECT string_agg(w.words[1], ' ') FROM regexp_matches(
                    left(v_source.said, 4000), '\m([[:upper:]][[:alnum:]''’-]*|\d{4})\M', 'g') w(words)))) t
            WHERE t.lexeme <> ALL (p_query)
            ORDER BY t.lexeme LIMIT 32);
        v_known := ARRAY(
            SELECT l.term FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_terms)
            ORDER BY l.term);
        -- What is not known to be frequent is rare, or was so when it was last counted.
        v_terms := ARRAY(SELECT t.term FROM unnest(v_terms) t(term) WHERE t.term <> ALL (v_known) ORDER BY t.term);
        v_counts := count_documents('note', v_terms, 401);
        v_terms := v_terms || v_known;
        v_counts := v_counts || ARRAY(
            SELECT l.documents FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = 'note' AND l.term = ANY (v_known)
            ORDER BY l.term);
        SELECT array_agg(c.term ORDER BY c.documents, c.term), array_agg(c.documents ORDER BY c.documents, c.term)
        INTO v_terms, v_counts
        FROM (SELECT t.term, t.documents FROM unnest(v_terms, v_counts) t(term, documents)
              WHERE t.documents BETWEEN 2 AND least(greatest(2, 0.05 * p_total), 400)
              ORDER BY t.documents, t.term LIMIT 5) c;
        CONTINUE WHEN v_terms IS NULL;
        RETURN QUERY
        SELECT v_source.note_id, m.note_id, m.score
        FROM match_notes(
            v_terms, ARRAY(SELECT ln(1 + (p_total - d + 0.5) / (d + 0.5)) ^ 2 FROM unnest(v_counts) d), v_terms,
            p_average, 1000, p_limit, p_known, p_scope) m
        WHERE m.note_id <> v_source.note_id;
    END LOOP;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION match_facts(
    p_terms text[], p_idf double precision[], p_chosen text[], p_average double precision, p_most int, p_limit int,
    p_valid timestamptz, p_known timestamptz, p_scope text)
RETURNS TABLE (fact_id uuid, score double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := nullif(current_setting('app.agent_id', true), '');
    v_gardens uuid[] := coalesce(nullif(current_setting('app.gardens', true), '')::uuid[], '{}');
    v_holds boolean := coalesce(current_setting('app.reach', true), '') = 'legal_hold';
    v_keys text[];
BEGIN
    IF v_tenant IS NULL OR v_project IS NULL OR cardinality(p_chosen) = 0 THEN
        RETURN;
    END IF;
    v_keys := lexical_keys(v_tenant, v_project, p_chosen);
    RETURN QUERY
    WITH found AS MATERIALIZED (
        SELECT f.fact_id, f.terms_length, ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms
        FROM graph_facts f
        WHERE lexical_keys(f.tenant_id, f.project_id, tsvector_to_array(f.terms)) && v_keys
          AND f.tenant_id IS NOT DISTINCT FROM v_tenant AND f.project_id IS NOT DISTINCT FROM v_project
          AND (f.suppression = 0 OR (f.suppression = 2 AND v_holds))
          AND (f.scope <> 'agent_private' OR f.agent_id = v_agent)
          AND (f.garden_id IS NULL OR f.garden_id = ANY (v_gardens))
          AND (p_scope IS NULL OR f.scope = p_scope)
          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                          v_tenant, p_valid, p_known)
        LIMIT p_most
    )
    SELECT f.fact_id, sum(t.idf * f.tf * 1.9 / (f.tf + 0.9 * (0.4 + 0.6 * f.terms_length / p_average)))
    FROM (
        -- Taken apart in the list of columns: as a table, each would be stored before it is read.
        SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
        FROM (SELECT f.fact_id, f.terms_length, unnest(f.terms) AS word FROM found f OFFSET 0) w
    ) f
    JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = f.lexeme
    GROUP BY f.fact_id ORDER BY 2 DESC, 1 LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION merge_entities(p_from uuid, p_into uuid, p_key text)
RETURNS TABLE (refused text, facts_moved bigint, facts_folded bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_names int;
    v_predicates uuid[];
    v_words uuid[];
    v_renamed uuid[];
    v_now timestamptz;
    v_moved bigint;
    v_folded bigint;
BEGIN
    -- Beside other merges, but never beside a tombstone.
    PERFORM FROM projects p WHERE p.tenant_id = v_tenant AND p.project_id = v_project FOR SHARE;
    SELECT count(*) INTO v_names FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.project_id = v_project AND e.entity_id IN (p_from, p_into) AND e.suppression = 0;
    IF p_from = p_into OR v_names < 2 THEN
        RETURN QUERY
        SELECT CASE WHEN p_from = p_into THEN 'same_entity' ELSE 'entity_not_found' END, 0::bigint, 0::bigint;
        RETURN;
    END IF;
    -- Those who write by these predicates finish first; then nobody can write about either entity.
    v_predicates := ARRAY(
        SELECT DISTINCT f.predicate_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into)));
    PERFORM FROM graph_predicates p
    WHERE p.tenant_id = v_tenant AND p.predicate_id = ANY (v_predicates)
    ORDER BY p.predicate_id FOR KEY SHARE;
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) ORDER BY e.entity_id FOR UPDATE;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.suppression > 0) THEN
        RETURN QUERY SELECT 'entity_not_found', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_entities e
               WHERE e.tenant_id = v_tenant AND e.entity_id IN (p_from, p_into) AND e.merged_into IS NOT NULL) THEN
        RETURN QUERY SELECT 'entity_merged', 0::bigint, 0::bigint;
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM graph_facts f
               WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.predicate_id <> ALL (v_predicates)
                 AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))) THEN
        RAISE EXCEPTION 'a predicate came to it meanwhile' USING ERRCODE = '40001';
    END IF;
    -- The subjects of facts that point to either, so that their timelines hold still.
    PERFORM FROM graph_entities e
    WHERE e.tenant_id = v_tenant AND e.entity_id IN (
        SELECT f.subject_entity_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_entity_id IN (p_from, p_into))
    ORDER BY e.entity_id FOR NO KEY UPDATE;
    v_now := clock_timestamp();
    v_folded := fold_beliefs(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id IN (p_from, p_into) OR f.object_entity_id IN (p_from, p_into))),
        p_from, p_into, v_now);

    v_words := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id AND p.status = 'pending'
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.object_value IS NOT NULL
          AND f.retracted_at IS NULL AND f.suppression = 0
          AND (f.subject_entity_id = p_from OR (f.subject_entity_id = p_into AND f.closed_at = v_now)));

    -- Of what is hidden no trace, not even in a number.
    SELECT count(*) INTO v_moved FROM graph_facts f
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression = 0
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    v_renamed := ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project
          AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from));
    UPDATE graph_facts f
    SET subject_entity_id = CASE f.subject_entity_id WHEN p_from THEN p_into ELSE f.subject_entity_id END,
        object_entity_id = CASE f.object_entity_id WHEN p_from THEN p_into ELSE f.object_entity_id END,
        object_hash = CASE f.object_entity_id WHEN p_from THEN sha256(uuid_send(p_into)) ELSE f.object_hash END,
        updated_at = v_now
    WHERE f.tenant_id = v_tenant AND f.project_id = v_project
      AND (f.subject_entity_id = p_from OR f.object_entity_id = p_from);
    -- Values in words that stood on two entities, or were lengthened, may contradict others now.
    PERFORM note_conflicts(v_tenant, v_project, v_words, array_fill(v_now, ARRAY[cardinality(v_words)]));
    UPDATE entity_edges x
    SET subject_entity_id = CASE x.subject_entity_id WHEN p_from THEN p_into ELSE x.subject_entity_id END,
        object_entity_id = CASE x.object_entity_id WHEN p_from THEN p_into ELSE x.object_entity_id END
    WHERE x.tenant_id = v_tenant AND x.project_id = v_project
      AND (x.subject_entity_id = p_from OR x.object_entity_id = p_from);
    INSERT INTO note_entity_mentions (tenant_id, project_id, note_id, entity_id, created_at, suppression, by_name)
    SELECT m.tenant_id, m.project_id, m.note_id, p_into, m.created_at, m.suppression, m.by_name
    FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM note_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;

    DELETE FROM graph_entity_aliases a
    WHERE a.tenant_id = v_tenant AND a.entity_id = p_from AND (
        EXISTS (SELECT FROM graph_entity_aliases b
                WHERE b.tenant_id = v_tenant AND b.entity_id = p_into AND b.alias_norm = a.alias_norm)
        OR EXISTS (SELECT FROM graph_entities e
                   WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND e.canonical_norm = a.alias_norm));
    UPDATE graph_entity_aliases a SET entity_id = p_into WHERE a.tenant_id = v_tenant AND a.entity_id = p_from;
    INSERT INTO graph_entity_aliases (tenant_id, alias_id, project_id, entity_id, alias, alias_norm, created_at)
    SELECT v_tenant, make_id(), v_project, p_into, e.canonical, e.canonical_norm, v_now
    FROM graph_entities e WHERE e.tenant_id = v_tenant AND e.entity_id = p_from
    ON CONFLICT (tenant_id, entity_id, alias_norm) DO NOTHING;
    UPDATE graph_entities e SET merged_into = p_into, updated_at = v_now
    WHERE e.tenant_id = v_tenant AND (e.entity_id = p_from OR e.merged_into = p_from);
    UPDATE graph_entities e
    SET kind = coalesce(e.kind, o.kind), object_canonical_id = coalesce(e.object_canonical_id, o.object_canonical_id),
        updated_at = v_now
    FROM graph_entities o
    WHERE e.tenant_id = v_tenant AND e.entity_id = p_into AND o.tenant_id = v_tenant AND o.entity_id = p_from;

    -- They are found by the name that stays, and written up under it.
    UPDATE graph_facts f
    SET terms = fact_terms(project_language(v_tenant, v_project), s.canonical, p.canonical,
                           coalesce(o.canonical, f.object_value))
    FROM graph_facts r
    JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = r.subject_entity_id
    JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = r.predicate_id
    LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = r.object_entity_id
    WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_renamed) AND r.tenant_id = v_tenant AND r.fact_id = f.fact_id;
    PERFORM queue_units(v_tenant, v_project, 'fact', v_renamed);
    PERFORM drop_cards(v_tenant, ARRAY(
        SELECT c.card_id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.entity_id IN (p_from, p_into)));

    UPDATE graph_fact_mentions m SET entity_id = p_into
    WHERE m.tenant_id = v_tenant AND m.entity_id = p_from AND NOT EXISTS (
        SELECT FROM graph_fact_mentions o
        WHERE o.tenant_id = v_tenant AND o.fact_id = m.fact_id AND o.entity_id = p_into);
    DELETE FROM graph_fact_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO document_entity_mentions (tenant_id, project_id, document_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.document_id, p_into, m.created_at, m.suppression
    FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM document_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    INSERT INTO object_entity_mentions (tenant_id, project_id, canonical_id, entity_id, created_at, suppression)
    SELECT m.tenant_id, m.project_id, m.canonical_id, p_into, m.created_at, m.suppression
    FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from
    ON CONFLICT DO NOTHING;
    DELETE FROM object_entity_mentions m WHERE m.tenant_id = v_tenant AND m.entity_id = p_from;
    -- A tombstone in some scopes goes along: what it hides of one it now hides of both.
    IF EXISTS (SELECT FROM tombstones t WHERE t.tenant_id = v_tenant AND t.entity_id IN (p_from, p_into)) THEN
        UPDATE tombstones t SET entity_id = p_into WHERE t.tenant_id = v_tenant AND t.entity_id = p_from;
        PERFORM settle_entity(v_tenant, v_project, v_agent, p_into);
    END IF;
    -- Facts that were moved may be hidden by what they point to; so are the lines this merge wrote about them.
    PERFORM settle_facts(v_tenant, v_project, v_agent, ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.project_id = v_project AND f.suppression > 0
          AND (f.subject_entity_id = p_into OR f.object_entity_id = p_into)));

    PERFORM record_event('admin_action', p_key, jsonb_build_object(
        'action', 'entity_merge', 'from', p_from, 'into', p_into, 'facts_moved', v_moved, 'facts_folded', v_folded));
    RETURN QUERY SELECT NULL::text, v_moved, v_folded;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION near_units(
    p_tenant text, p_project text, p_kind text, p_model smallint, p_dimensions int, p_vector text, p_limit int,
    p_scope text, p_valid timestamptz DEFAULT NULL, p_known timestamptz DEFAULT NULL,
    p_relations uuid[] DEFAULT NULL, p_confidence double precision DEFAULT 0, p_trust double precision DEFAULT 0)
RETURNS TABLE (owner_id uuid, cosine double precision)
LANGUAGE plpgsql VOLATILE
-- Of the lookups: what is written out below is planned each time.
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
-- Named here so that what the function does to it ends with it.
SET enable_sort = on
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_vectors bigint;
    v_share double precision;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_holds text := '';
    v_enough text := '';
    -- Kind and model are written out: that an index has only these must be plain to see.
    v_mine text := format(
        'e.tenant_id = $2 AND e.project_id = $3 AND e.view = ''self'' AND ($4::text IS NULL OR e.scope = $4) '
        'AND e.owner_kind = %L AND e.model_id = %s', p_kind, p_model);
    v_found int;
BEGIN
    -- How many of this kind there are; cards and objects are few.
    IF p_kind NOT IN ('card', 'object') THEN
        SELECT CASE WHEN c.notes + c.facts = 0 THEN c.vectors WHEN p_kind = 'note' THEN c.notes ELSE c.facts END
        INTO v_vectors FROM embedding_counts c
        WHERE c.tenant_id = p_tenant AND c.project_id = p_project AND c.model_id = p_model AND c.view = 'self';
    END IF;
    IF v_vectors > 25000 THEN
        -- Of the index over the part of the table that has this tenant's vectors.
        SELECT v_vectors / greatest(r.reltuples, 1) INTO v_share
        FROM pg_inherits p JOIN pg_index i ON i.indexrelid = p.inhrelid JOIN pg_class r ON r.oid = p.inhrelid
        WHERE p.inhparent = to_regclass(format('embeddings_%s_%s_idx', p_model, p_kind))
          AND i.indrelid = (SELECT e.tableoid FROM embeddings e
                            WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' LIMIT 1);
    END IF;
    -- One unit after the other, in the order of distance, until enough hold.
    IF p_kind = 'fact' THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, $2, $7) AS sure,'
            '           f.source_trust FROM graph_facts f'
            '    WHERE f.tenant_id = $2 AND f.fact_id = e.owner_id'
            '      AND ($8::uuid[] IS NULL OR f.predicate_id = ANY ($8))'
            '      AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,'
            '                      $2, $6, $7) OFFSET 0) h';
        v_enough := ' AND h.sure >= $9 AND h.sure > 0 AND h.sure * h.source_trust >= $10';
    ELSIF p_kind = 'note' AND p_known IS NOT NULL THEN
        v_holds := 'CROSS JOIN LATERAL ('
            '    SELECT FROM memory_notes n WHERE n.tenant_id = $2 AND n.note_id = e.owner_id AND n.created_at <= $7'
            '    OFFSET 0) h';
    END IF;
    -- To find one that fits by the index takes as long as to look at fifty, and the longer the fewer fit.
    IF v_share >= 0.05 AND v_vectors > 50 * p_limit / v_share THEN
        -- Here, and not with the function: a session that has met no vector yet does not know these settings.
        PERFORM set_config('hnsw.iterative_scan', 'relaxed_order', true),
                set_config('hnsw.ef_search', least(greatest(90, 3 * p_limit / 2), 400)::text, true),
                set_config('hnsw.max_scan_tuples', '40000', true);
        PERFORM set_config('enable_sort', 'off', true);
        -- The index has half the bits of each number, the answer all of them.
        RETURN QUERY EXECUTE format(
            'WITH near AS MATERIALIZED ('
            '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e %2$s'
            '    WHERE %3$s%4$s ORDER BY e.vector::halfvec(%1$s) <#> $1::halfvec(%1$s) LIMIT $5)'
            'SELECT n.owner_id, -n.distance FROM near n ORDER BY n.distance, n.owner_id',
            p_dimensions, v_holds, v_mine, v_enough)
        USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
        GET DIAGNOSTICS v_found = ROW_COUNT;
        IF v_found > 0 THEN
            RETURN;
        END IF;
        -- Nothing of what the caller may read was met: then it is little, and is looked through.
    END IF;
    PERFORM set_config('enable_sort', 'on', true);
    RETURN QUERY EXECUTE format(
        'SELECT e.owner_id, -e.distance FROM ('
        '    SELECT e.owner_id, e.vector <#> $1 AS distance FROM embeddings e WHERE %2$s'
        '    ORDER BY 2, 1 OFFSET 0) e %1$s WHERE true%3$s LIMIT $5', v_holds, v_mine, v_enough)
    USING v_query, p_tenant, p_project, p_scope, p_limit, v_valid, p_known, p_relations, p_confidence, p_trust;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION note_terms(
    p_tenant text, p_project text, p_author text, p_occurred_at timestamptz, p_tags text[], p_content text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(project_language(p_tenant, p_project), concat_ws(' ',
        p_author, to_char(p_occurred_at AT TIME ZONE 'UTC', 'FMDD FMMonth YYYY'), array_to_string(p_tags, ' '),
        p_content));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION object_terms(
    p_tenant text, p_project text, p_title text, p_key text, p_labels text[], p_text text)
RETURNS tsvector
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN to_tsvector(
        CASE WHEN p_project IS NULL THEN 'simple'::regconfig ELSE project_language(p_tenant, p_project) END,
        concat_ws(' ', p_title, p_key, array_to_string(p_labels, ' '), p_text));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_units(p_model smallint, p_limit int, p_min double precision, p_patterns text[])
RETURNS TABLE (
    owner_kind text, owner_id uuid, queued_at timestamptz, attempts int, stored_hash bytea, embedded_at timestamptz,
    author text, occurred_at timestamptz, words text, redactions int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_patterns text[];
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
BEGIN
    v_patterns := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = v_tenant ORDER BY r.created_at, r.pattern_id);
    RETURN QUERY
    SELECT q.owner_kind, q.owner_id, q.queued_at, q.attempts, e.text_hash, e.embedded_at, a.words, u.occurred_at,
           r.words, coalesce(r.redactions, 0) + coalesce(a.redactions, 0)
    FROM (
        SELECT q.* FROM embedding_queue q
        WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model AND q.available_at <= v_now
        ORDER BY q.available_at, q.owner_id LIMIT p_limit
    ) q
    LEFT JOIN LATERAL (
        SELECT n.author, n.occurred_at, n.content AS said FROM memory_notes n
        WHERE q.owner_kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = q.owner_id AND n.project_id = v_project
          AND n.deleted_at IS NULL AND n.suppression = 0
        UNION ALL
        SELECT NULL, NULL, concat_ws(' ', last_segment(s.canonical), p.canonical,
                   CASE WHEN f.object_entity_id IS NOT NULL THEN last_segment(o.canonical)
                        WHEN f.value_type = 'ref' THEN last_segment(f.object_value) ELSE f.object_value END)
        FROM graph_facts f
        JOIN graph_entities s ON s.tenant_id = v_tenant AND s.entity_id = f.subject_entity_id
        JOIN graph_predicates p ON p.tenant_id = v_tenant AND p.predicate_id = f.predicate_id
        LEFT JOIN graph_entities o ON o.tenant_id = v_tenant AND o.entity_id = f.object_entity_id
        WHERE q.owner_kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = q.owner_id AND f.project_id = v_project
          AND f.suppression = 0 AND f.confidence > p_min
        UNION ALL
        SELECT NULL, NULL, c.content FROM memory_cards c
        WHERE q.owner_kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = q.owner_id AND c.project_id = v_project
          AND c.suppression = 0
        UNION ALL
        -- Of objects what stands on main.
        SELECT NULL, NULL, o.embed_text FROM graph_objects o
        WHERE q.owner_kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main
          AND o.canonical_id = q.owner_id AND o.deleted_at IS NULL AND o.suppression = 0
    ) u ON true
    LEFT JOIN LATERAL redact_text(u.said, v_patterns) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, v_patterns) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_facts(
    p_tenant text, p_project text, p_terms text[], p_idf double precision[], p_average double precision,
    p_model smallint, p_vector text, p_lexical uuid[], p_near uuid[], p_cards uuid[], p_walked int, p_valid timestamptz,
    p_known timestamptz, p_scope text, p_entity uuid, p_relations uuid[], p_confidence double precision,
    p_trust double precision, p_depth int, p_notes uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_scopes text[] := CASE WHEN p_scope IS NOT NULL THEN ARRAY[p_scope] END;
    v_lexical uuid[] := p_lexical;
    v_related uuid[] := '{}';
    v_seeds uuid[] := '{}';
    v_walked uuid[] := '{}';
    v_graph double precision[] := '{}';
    v_hops int[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF p_entity IS NOT NULL THEN
        v_lexical := ARRAY(
            SELECT f.fact_id FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = p_entity
              AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
              AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
              AND (p_scope IS NULL OR f.scope = p_scope)
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              p_tenant, v_valid, p_known)
            ORDER BY f.created_at DESC, f.fact_id LIMIT 2000);
    ELSE
        IF p_relations IS NOT NULL THEN
            -- The best of all relations need not have one of these among them.
            v_related := ARRAY(
                SELECT f.fact_id FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.predicate_id = ANY (p_relations)
                  AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
                  AND (p_scope IS NULL OR f.scope = p_scope)
                  AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                                  p_tenant, v_valid, p_known)
                ORDER BY f.created_at DESC, f.fact_id LIMIT 2000);
        END IF;
        IF p_depth > 0 THEN
            -- What the best of them speak of, as far as they hold themselves.
            v_seeds := ARRAY(
                SELECT x.entity_id FROM (
                    SELECT u.entity_id, min(u.place) AS place FROM (
                        SELECT e.entity_id, h.place
                        FROM (SELECT l.id, l.place FROM unnest(v_lexical[1:10]) WITH ORDINALITY l(id, place)
                              UNION ALL
                              SELECT l.id, l.place FROM unnest(p_near[1:10]) WITH ORDINALITY l(id, place)) h
                        CROSS JOIN LATERAL (
                            SELECT f.subject_entity_id, f.object_entity_id, f.source_trust,
                                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant,
                                                   p_known) AS sure
                            FROM graph_facts f
                            WHERE f.tenant_id = p_tenant AND f.fact_id = h.id
                              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                              f.retracted_at, p_tenant, v_valid, p_known)
                            OFFSET 0) f
                        CROSS JOIN LATERAL (VALUES (f.subject_entity_id), (f.object_entity_id)) e(entity_id)
                        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
                        UNION ALL
                        SELECT m.entity_id, l.place
                        FROM unnest(p_notes) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT m.entity_id FROM note_entity_mentions m
                            WHERE m.tenant_id = p_tenant AND m.note_id = l.id OFFSET 0) m
                        UNION ALL
                        -- What the nearest cards are about.
                        SELECT c.entity_id, l.place
                        FROM unnest(p_cards) WITH ORDINALITY l(id, place)
                        CROSS JOIN LATERAL (
                            SELECT c.entity_id FROM memory_cards c
                            WHERE c.tenant_id = p_tenant AND c.card_id = l.id OFFSET 0) c
                    ) u WHERE u.entity_id IS NOT NULL GROUP BY u.entity_id
                ) x ORDER BY x.place, x.entity_id LIMIT 20);
        END IF;
        IF cardinality(v_seeds) > 0 THEN
            SELECT array_agg(g.fact_id ORDER BY g.fact_id), array_agg(g.score ORDER BY g.fact_id),
                   array_agg(g.hops ORDER BY g.fact_id)
            INTO v_walked, v_graph, v_hops
            FROM (
                WITH walk AS MATERIALIZED (
                    -- Over edges that are trusted enough, and on from what was reached over such.
                    SELECT w.scope, w.entity_id, w.hops, w.confidence, w.out_degree, x.origin_id
                    FROM expand_seeds(p_tenant, p_project, v_scopes, v_seeds, p_depth, p_confidence, p_trust, v_valid,
                                      p_known, ARRAY[20, 10], 100, 1000) w
                    CROSS JOIN LATERAL (
                        SELECT CASE WHEN x.subject_entity_id = w.entity_id THEN x.object_entity_id
                               ELSE x.subject_entity_id END AS origin_id
                        FROM entity_edges x
                        WHERE x.tenant_id = p_tenant AND x.edge_id = w.edge_id
                          AND w.confidence * x.source_trust >= p_trust
                        OFFSET 0) x
                )
                SELECT u.* FROM (
                    SELECT DISTINCT ON (f.fact_id) f.fact_id, r.score, r.hops
                    FROM (
                        SELECT w.entity_id, w.hops,
                               (1.0 / (1 + w.hops)) * w.confidence / ln(1 + greatest(w.out_degree, 1)) AS score
                        FROM walk w
                        WHERE w.hops = 1 OR EXISTS (
                            SELECT FROM walk v
                            WHERE v.scope = w.scope AND v.entity_id = w.origin_id AND v.hops = w.hops - 1)
                        UNION ALL
                        -- Where the walk starts: no edge was taken yet.
                        SELECT s.id, 0, 1 / ln(1 + greatest(d.degree, 1))
                        FROM unnest(v_seeds) s(id)
                        CROSS JOIN LATERAL (
                            SELECT count(*) AS degree FROM (
                                SELECT FROM entity_edges x
                                WHERE x.tenant_id = p_tenant AND x.project_id = p_project
                                  AND x.subject_entity_id = s.id AND (p_scope IS NULL OR x.scope = p_scope)
                                  AND x.created_at <= coalesce(p_known, 'infinity')
                                  AND (x.retracted_at IS NULL OR x.retracted_at > p_known)
                                  AND x.valid_from <= v_valid AND (x.valid_until > v_valid OR x.closed_at > p_known)
                                LIMIT 1000) o) d
                        ORDER BY 3 DESC, 1 LIMIT 40
                    ) r
                    CROSS JOIN LATERAL (
                        SELECT f.fact_id FROM graph_facts f
                        WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.subject_entity_id = r.entity_id
                          AND f.valid_until > CASE WHEN p_known IS NULL THEN v_valid ELSE '-infinity' END
                          AND (p_scope IS NULL OR f.scope = p_scope)
                          AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
                          AND f.confidence * f.source_trust >= CASE WHEN p_known IS NULL THEN p_trust ELSE 0 END
                          AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at,
                                          f.retracted_at, p_tenant, v_valid, p_known)
                        ORDER BY f.confidence DESC, f.fact_id DESC LIMIT 20
                    ) f
                    ORDER BY f.fact_id, r.score DESC, r.hops
                ) u ORDER BY u.score DESC, u.fact_id LIMIT p_walked
            ) g;
        END IF;
    END IF;
    RETURN (
    WITH chosen AS MATERIALIZED (
        SELECT c.id, max(c.graph) AS graph, min(c.hops) AS hops FROM (
            SELECT h.id, NULL::double precision AS graph, 0 AS hops FROM unnest(v_lexical) h(id)
            UNION ALL
            SELECT h.id, NULL, 0 FROM unnest(p_near || v_related) h(id)
            UNION ALL
            SELECT w.id, w.graph, w.hops FROM unnest(v_walked, v_graph, v_hops) w(id, graph, hops)
        ) c GROUP BY c.id
    ), stood AS MATERIALIZED (
        SELECT f.*, c.graph, c.hops FROM chosen c
        CROSS JOIN LATERAL (
            SELECT f.fact_id, f.source_trust, f.created_at, f.access_count, f.terms_length,
                   ts_filter(setweight(f.terms, 'A', p_terms), '{a}') AS terms,
                   fact_confidence(f.fact_id, f.confidence, f.weighed_at, f.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts f
            WHERE f.tenant_id = p_tenant AND f.fact_id = c.id AND f.project_id = p_project
              AND (p_scope IS NULL OR f.scope = p_scope)
              AND (p_relations IS NULL OR f.predicate_id = ANY (p_relations))
              AND fact_stands(f.fact_id, f.valid_from, f.valid_until, f.created_at, f.closed_at, f.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) f
        WHERE f.sure >= p_confidence AND f.sure > 0 AND f.sure * f.source_trust >= p_trust
    )
    SELECT coalesce(json_agg(json_build_array(
           s.fact_id, coalesce(b.score, 0), e.cosine, s.graph, s.hops, s.sure, s.source_trust,
           extract(epoch FROM s.created_at), s.access_count, k.disputed, NOT k.worse,
           CASE WHEN EXISTS (SELECT FROM fact_derivations d
                             WHERE d.tenant_id = p_tenant AND d.fact_id = s.fact_id AND d.kind = 'derived')
                THEN derivation_depth(p_tenant, s.fact_id, 5) ELSE 0 END) ORDER BY s.fact_id), '[]')::text
    FROM stood s
    LEFT JOIN (
        SELECT x.fact_id,
               sum(t.idf * x.tf * 1.9 / (x.tf + 0.9 * (0.4 + 0.6 * x.terms_length / p_average))) AS score
        FROM (
            SELECT w.fact_id, w.terms_length, (w.word).lexeme, cardinality((w.word).positions)::double precision AS tf
            FROM (SELECT x.fact_id, x.terms_length, unnest(x.terms) AS word FROM stood x OFFSET 0) w
        ) x
        JOIN unnest(p_terms, p_idf) t(term, idf) ON t.term = x.lexeme
        GROUP BY x.fact_id
    ) b ON b.fact_id = s.fact_id
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'fact'
          AND e.owner_id = s.fact_id
        OFFSET 0) e ON v_query IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT count(*) > 0 AS disputed,
               coalesce(bool_or((o.sure, o.created_at) > (s.sure, s.created_at)), false) AS worse
        FROM (
            SELECT k.fact_b AS other FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_a = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
            UNION ALL
            SELECT k.fact_a FROM fact_conflicts k
            WHERE k.tenant_id = p_tenant AND k.fact_b = s.fact_id
              AND CASE WHEN p_known IS NULL THEN k.status = 'open'
                  ELSE k.detected_at <= p_known AND (k.resolved_at IS NULL OR k.resolved_at > p_known) END
        ) k
        LEFT JOIN LATERAL (
            SELECT o.created_at, o.source_trust,
                   fact_confidence(o.fact_id, o.confidence, o.weighed_at, o.retracted_at, p_tenant, p_known) AS sure
            FROM graph_facts o
            WHERE o.tenant_id = p_tenant AND o.fact_id = k.other
              AND fact_stands(o.fact_id, o.valid_from, o.valid_until, o.created_at, o.closed_at, o.retracted_at,
                              p_tenant, v_valid, p_known)
            OFFSET 0) o ON o.sure >= p_confidence AND o.sure * o.source_trust >= p_trust
    ) k);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_notes(
    p_tenant text, p_project text, p_terms text[], p_model smallint, p_dimensions int, p_vector text, p_near int,
    p_reach int, p_known timestamptz, p_scope text, p_wanted uuid[])
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_hits uuid[] := p_wanted;
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    IF v_query IS NOT NULL AND p_near > 0 THEN
        v_hits := v_hits || ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, p_near, p_scope, NULL, p_known) n);
    END IF;
    RETURN (
        SELECT coalesce(json_agg(w.units ORDER BY h.id), '[]')::text
        FROM (SELECT DISTINCT h.id FROM unnest(v_hits) h(id)) h
        CROSS JOIN LATERAL (
            SELECT n.note_id, n.thread_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
            FROM memory_notes n
            WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.suppression = 0
              AND (n.deleted_at IS NULL OR n.deleted_at > p_known)
              AND (p_known IS NULL OR n.created_at <= p_known) AND (p_scope IS NULL OR n.scope = p_scope)
            OFFSET 0) n
        CROSS JOIN LATERAL (
            SELECT json_agg(json_build_array(
                       u.note_id, u.terms_length, CASE WHEN u.position IS NOT NULL THEN u.telling END,
                       ts_filter(setweight(
                           CASE WHEN u.updated_at > p_known AND u.version > 1 THEN (
                               SELECT note_terms(
                                   p_tenant, p_project, o.author, o.occurred_at, o.tags, coalesce((
                                       SELECT h.old_content FROM memory_history h
                                       WHERE h.tenant_id = p_tenant AND h.note_id = o.note_id AND h.created_at > p_known
                                         AND h.old_content IS NOT NULL
                                       ORDER BY h.created_at, h.history_id LIMIT 1), o.content))
                               FROM memory_notes o WHERE o.tenant_id = p_tenant AND o.note_id = u.note_id)
                           ELSE u.terms END, 'A', p_terms), '{a}')::text,
                       e.cosine) ORDER BY u.place) AS units
            FROM (
                SELECT 0 AS place, n.note_id, n.position, n.terms_length, n.telling, n.terms, n.updated_at, n.version
                UNION ALL
                SELECT -row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) < (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position DESC, x.note_id DESC LIMIT p_reach) x
                UNION ALL
                SELECT row_number() OVER (), x.* FROM (
                    SELECT x.note_id, x.position, x.terms_length, x.telling, x.terms, x.updated_at, x.version
                    FROM memory_notes x
                    WHERE x.tenant_id = p_tenant AND x.project_id = p_project AND x.thread_id = n.thread_id
                      AND (x.position, x.note_id) > (n.position, n.note_id) AND x.suppression = 0
                      AND (x.deleted_at IS NULL OR x.deleted_at > p_known)
                      AND (p_known IS NULL OR x.created_at <= p_known) AND (p_scope IS NULL OR x.scope = p_scope)
                    ORDER BY x.position, x.note_id LIMIT p_reach) x
            ) u
            -- Meaning reaches two steps far (see threads.py); vectors are dear to read.
            LEFT JOIN LATERAL (
                SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
                WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self'
                  AND e.owner_kind = 'note' AND e.owner_id = u.note_id
                OFFSET 0) e ON v_query IS NOT NULL AND abs(u.place) <= 2 AND (u.updated_at > p_known) IS NOT TRUE
        ) w);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION recall_words(
    p_tenant text, p_project text, p_kind text, p_query text, p_limit int, p_valid timestamptz, p_known timestamptz,
    p_scope text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_valid timestamptz := coalesce(p_valid, p_known, clock_timestamp());
    v_terms record;
    v_idf double precision[];
    v_looked bigint[];
    v_chosen text[];
    v_hits uuid[] := '{}';
BEGIN
    PERFORM check_as_of(p_tenant, p_project, p_known);
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, p_kind, p_query, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    IF p_limit > 0 THEN
        -- What stands nowhere any more may have stood somewhere then.
        v_looked := CASE WHEN p_known IS NULL THEN v_terms.documents ELSE ARRAY(
            SELECT greatest(d.documents, 1) FROM unnest(v_terms.documents) WITH ORDINALITY d(documents, place)
            ORDER BY d.place) END;
        v_chosen := choose_terms(v_terms.terms, v_looked, 2000);
        IF p_kind = 'fact' THEN
            v_hits := ARRAY(
                SELECT m.fact_id FROM match_facts(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, v_valid, p_known, p_scope) m);
        ELSE
            IF p_known IS NOT NULL THEN
                -- What was changed or deleted since is found by what it said then, and no index has that.
                v_hits := ARRAY(
                    SELECT n.note_id FROM memory_notes n
                    WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.created_at <= p_known
                      AND n.updated_at > p_known AND n.version > 1
                    ORDER BY n.updated_at DESC, n.note_id LIMIT 500);
            END IF;
            v_hits := v_hits || ARRAY(
                SELECT m.note_id FROM match_notes(
                    v_terms.terms, v_idf, v_chosen, v_terms.average, 4000, p_limit, p_known, p_scope) m);
        END IF;
    END IF;
    RETURN json_build_object(
        'terms', v_terms.terms, 'idf', v_idf, 'total', v_terms.total, 'average', v_terms.average, 'hits', v_hits);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION similar_notes(
    p_tenant text, p_project text, p_text text, p_model smallint, p_dimensions int, p_vector text, p_scope text,
    p_owner text, p_skipped uuid[], p_patterns text[], p_limit int)
RETURNS TABLE (note_id uuid, type text, content text, version int, score double precision)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_query vector := p_vector::vector;
    v_terms record;
    v_idf double precision[];
    v_found uuid[] := '{}';
    v_scores double precision[] := '{}';
    v_best double precision;
    v_near uuid[] := '{}';
    v_patterns text[] := p_patterns || ARRAY(
        SELECT r.pattern FROM embedding_redactions r WHERE r.tenant_id = p_tenant ORDER BY r.created_at, r.pattern_id);
BEGIN
    SELECT w.* INTO v_terms FROM weigh_terms(p_tenant, p_project, 'note', p_text, 64) w;
    v_idf := ARRAY(SELECT ln(1 + (v_terms.total - d + 0.5) / (d + 0.5)) FROM unnest(v_terms.documents) d);
    SELECT coalesce(array_agg(m.note_id), '{}'), coalesce(array_agg(m.score), '{}'), max(m.score)
    INTO v_found, v_scores, v_best
    FROM match_notes(v_terms.terms, v_idf, choose_terms(v_terms.terms, v_terms.documents, 200), v_terms.average, 1000,
                     60, NULL, p_scope) m
    WHERE m.note_id <> ALL (p_skipped);
    IF v_query IS NOT NULL THEN
        v_near := ARRAY(
            SELECT n.owner_id FROM near_units(
                p_tenant, p_project, 'note', p_model, p_dimensions, p_vector, 60, p_scope) n);
    END IF;
    RETURN QUERY
    SELECT n.note_id, n.type, (redact_text(n.content, v_patterns)).words, n.version, s.score
    FROM (
        SELECT u.id, max(u.score) / nullif(v_best, 0) AS lexical
        FROM (SELECT f.id, f.score FROM unnest(v_found, v_scores) f(id, score)
              UNION ALL SELECT f.id, NULL FROM unnest(v_near) f(id)) u
        WHERE u.id <> ALL (p_skipped) GROUP BY u.id
    ) h
    CROSS JOIN LATERAL (
        SELECT n.note_id, n.type, n.content, n.version FROM memory_notes n
        WHERE n.tenant_id = p_tenant AND n.note_id = h.id AND n.project_id = p_project AND n.deleted_at IS NULL
          AND n.suppression = 0 AND n.scope = p_scope AND n.owner_key = p_owner AND n.type <> 'document_chunk'
        OFFSET 0) n
    LEFT JOIN LATERAL (
        SELECT -(e.vector <#> v_query) AS cosine FROM embeddings e
        WHERE e.tenant_id = p_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = 'note'
          AND e.owner_id = h.id
        OFFSET 0) e ON v_query IS NOT NULL
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.cosine IS NULL THEN h.lexical WHEN h.lexical IS NULL THEN e.cosine
                    ELSE 0.7 * e.cosine + 0.3 * h.lexical END AS score) s
    WHERE s.score >= 0.3
    ORDER BY s.score DESC, n.note_id LIMIT p_limit;
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION store_vectors(
    p_model smallint, p_made timestamptz, p_units json, p_vectors text[], OUT skipped uuid[], OUT subjects uuid[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := nullif(current_setting('app.tenant_id', true), '');
    v_project text := nullif(current_setting('app.project_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_main uuid := (
        SELECT b.branch_id FROM branches b
        WHERE b.tenant_id = v_tenant AND b.project_id = v_project AND b.name = 'main');
    v_leads boolean;
    v_ids uuid[];
    v_held uuid[];
    v_known uuid[];
    v_added bigint;
    v_removed bigint;
    v_notes bigint;
    v_facts bigint;
BEGIN
    v_ids := ARRAY(SELECT u.id FROM json_to_recordset(p_units) AS u(id uuid, place int) WHERE u.place IS NOT NULL);
    PERFORM FROM embedding_models m WHERE m.model_id = p_model AND m.created_at = p_made FOR KEY SHARE;
    IF NOT FOUND THEN
        skipped := v_ids;
        RETURN;
    END IF;
    -- What is told of words and cards is told once, however many models there are.
    SELECT m.model_id = p_model INTO v_leads FROM embedding_models m ORDER BY m.active DESC, m.model_id LIMIT 1;

    -- First of all the place that reconciliation holds too: one of the two works at a time, and neither waits for the
    -- other with something in hand.
    INSERT INTO embedding_counts AS c (
        tenant_id, project_id, model_id, view, vectors, notes, facts, counted_at)
    VALUES (v_tenant, v_project, p_model, 'self', 0, 0, 0, v_now)
    ON CONFLICT (tenant_id, project_id, model_id, view) DO UPDATE SET counted_at = excluded.counted_at;

    -- Whoever hides or erases a unit waits until its vector is there to be hidden or erased too. Nobody is waited for
    -- here, so that nobody can wait for us in a circle.
    v_held := ARRAY(
        SELECT c.card_id FROM memory_cards c
        WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids) AND c.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT f.fact_id FROM graph_facts f
        WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids) AND f.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT n.note_id FROM memory_notes n
        WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids) AND n.project_id = v_project
        FOR SHARE SKIP LOCKED);
    v_held := v_held || ARRAY(
        SELECT o.canonical_id FROM graph_objects o
        WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        FOR SHARE SKIP LOCKED);
    skipped := ARRAY(
        SELECT x.id FROM (
            SELECT c.card_id AS id FROM memory_cards c WHERE c.tenant_id = v_tenant AND c.card_id = ANY (v_ids)
            UNION ALL
            SELECT f.fact_id FROM graph_facts f WHERE f.tenant_id = v_tenant AND f.fact_id = ANY (v_ids)
            UNION ALL
            SELECT n.note_id FROM memory_notes n WHERE n.tenant_id = v_tenant AND n.note_id = ANY (v_ids)
            UNION ALL
            SELECT o.canonical_id FROM graph_objects o
            WHERE o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = ANY (v_ids)
        ) x WHERE x.id <> ALL (v_held));

    v_known := ARRAY(
        SELECT e.owner_id FROM json_to_recordset(p_units) AS u(kind text, id uuid)
        JOIN embeddings e ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
            AND e.owner_kind = u.kind AND e.owner_id = u.id);
    WITH stored AS (
        INSERT INTO embeddings AS e (
            tenant_id, project_id, owner_kind, owner_id, view, model_id, agent_id, scope, garden_id, suppression,
            text_hash, embedded_at, vector)
        SELECT v_tenant, v_project, u.kind, u.id, 'self', p_model, o.agent_id, o.scope, o.garden_id, o.suppression,
               decode(u.hash, 'hex'), v_now, p_vectors[u.place]::vector
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, hash text, place int)
        CROSS JOIN LATERAL (
            SELECT n.agent_id, n.scope, n.garden_id, n.suppression FROM memory_notes n
            WHERE u.kind = 'note' AND n.tenant_id = v_tenant AND n.note_id = u.id
            UNION ALL
            SELECT f.agent_id, f.scope, f.garden_id, f.suppression FROM graph_facts f
            WHERE u.kind = 'fact' AND f.tenant_id = v_tenant AND f.fact_id = u.id
            UNION ALL
            SELECT c.agent_id, c.scope, c.garden_id, c.suppression FROM memory_cards c
            WHERE u.kind = 'card' AND c.tenant_id = v_tenant AND c.card_id = u.id
            UNION ALL
            SELECT '', 'project_shared', NULL, o.suppression FROM graph_objects o
            WHERE u.kind = 'object' AND o.tenant_id = v_tenant AND o.branch_id = v_main AND o.canonical_id = u.id
        ) o
        WHERE u.place IS NOT NULL AND u.id = ANY (v_held)
        ORDER BY u.kind, u.id
        ON CONFLICT (tenant_id, model_id, view, owner_kind, owner_id) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, embedded_at = excluded.embedded_at,
            agent_id = excluded.agent_id, scope = excluded.scope, garden_id = excluded.garden_id,
            suppression = excluded.suppression
        RETURNING e.owner_id <> ALL (v_known) AS is_new, e.owner_kind
    ), told AS (
        INSERT INTO lexical_statistics AS s (tenant_id, project_id, kind, documents, total_length, added, counted_at)
        SELECT v_tenant, v_project, t.owner_kind, 0, 0, count(*), '-infinity' FROM stored t
        WHERE v_leads AND t.is_new AND t.owner_kind IN ('note', 'fact', 'object') GROUP BY t.owner_kind
        ON CONFLICT (tenant_id, project_id, kind) DO UPDATE SET added = s.added + excluded.added
        RETURNING s.kind
    )
    SELECT count(*), count(*) FILTER (WHERE t.owner_kind = 'note'), count(*) FILTER (WHERE t.owner_kind = 'fact')
    INTO v_added, v_notes, v_facts FROM stored t WHERE t.is_new;

    WITH gone AS (
        DELETE FROM embeddings e USING json_to_recordset(p_units) AS u(kind text, id uuid, gone boolean)
        WHERE u.gone AND e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self'
          AND e.owner_kind = u.kind AND e.owner_id = u.id
        RETURNING e.owner_kind
    )
    SELECT count(*), v_notes - count(*) FILTER (WHERE g.owner_kind = 'note'),
           v_facts - count(*) FILTER (WHERE g.owner_kind = 'fact')
    INTO v_removed, v_notes, v_facts FROM gone g;
    DELETE FROM embedding_queue q
    USING json_to_recordset(p_units) AS u(kind text, id uuid, queued_at timestamptz)
    WHERE q.tenant_id = v_tenant AND q.project_id = v_project AND q.model_id = p_model
      AND q.owner_kind = u.kind AND q.owner_id = u.id AND q.queued_at = u.queued_at AND u.id <> ALL (skipped);
    UPDATE embedding_counts c
    SET vectors = greatest(0, c.vectors + v_added - v_removed), notes = greatest(0, c.notes + v_notes),
        facts = greatest(0, c.facts + v_facts)
    WHERE c.tenant_id = v_tenant AND c.project_id = v_project AND c.model_id = p_model AND c.view = 'self'
      AND (v_added > 0 OR v_removed > 0);
    subjects := ARRAY(
        SELECT DISTINCT f.subject_entity_id
        FROM json_to_recordset(p_units) AS u(kind text, id uuid, place int, gone boolean)
        JOIN graph_facts f ON f.tenant_id = v_tenant AND f.fact_id = u.id AND f.project_id = v_project
        WHERE v_leads AND u.kind = 'fact' AND (u.gone OR u.place IS NOT NULL) AND u.id <> ALL (skipped)
          AND EXISTS (SELECT FROM memory_cards c
                      WHERE c.tenant_id = v_tenant AND c.project_id = v_project
                        AND c.entity_id = f.subject_entity_id));
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION walk_edges(
    p_tenant text, p_project text, p_scope text, p_seeds uuid[], p_depth int, p_direction text, p_relations uuid[],
    p_confidence double precision, p_trust double precision, p_valid timestamptz, p_known timestamptz, p_fans int[],
    p_cap int)
RETURNS TABLE (
    entity_id uuid, hops int, edge_id uuid, confidence double precision, path uuid[], truncated boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_out boolean := p_direction <> 'in';
    v_in boolean := p_direction <> 'out';
    v_front uuid[] := p_seeds;
    v_offset int := 0;
    v_room int;
    v_new uuid[];
    v_new_parents int[];
    v_new_edges uuid[];
    v_new_confidences double precision[];
    v_hubs boolean;
    v_found uuid[] := '{}';
    v_hops int[] := '{}';
    v_parents int[] := '{}';
    v_edges uuid[] := '{}';
    v_confidences double precision[] := '{}';
    v_truncated boolean := false;
BEGIN
    FOR v_level IN 1 .. p_depth LOOP
        v_room := p_cap - cardinality(v_found);
        IF v_room = 0 THEN
            v_truncated := true;
            EXIT;
        END IF;
        -- One edge more than may be followed is asked for, and stands for all that are left out: it leads nowhere.
        -- Joins other than the lookups of edges go by hash: those by nested loops would grow with the square.
        IF p_known IS NULL THEN
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_now(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_valid, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        ELSE
            SELECT array_agg(n.entity_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.parent) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.edge_id) FILTER (WHERE n.entity_id IS NOT NULL),
                   array_agg(n.confidence) FILTER (WHERE n.entity_id IS NOT NULL),
                   bool_or(n.entity_id IS NULL)
            INTO v_new, v_new_parents, v_new_edges, v_new_confidences, v_hubs
            FROM (
                SELECT d.entity_id, d.parent, d.edge_id, d.confidence FROM (
                    SELECT DISTINCT ON (1) CASE WHEN x.pick <= p_fans[v_level] THEN x.entity_id END AS entity_id,
                           v_offset + f.place::int AS parent, x.edge_id, x.confidence
                    FROM unnest(v_front) WITH ORDINALITY f(entity_id, place)
                    CROSS JOIN LATERAL edges_then(
                        p_tenant, p_project, p_scope, f.entity_id, v_out, v_in, p_relations, p_confidence, p_trust,
                        p_valid, p_known, p_fans[v_level] + 1) x
                    ORDER BY 1, x.confidence DESC, f.entity_id, x.edge_id DESC
                ) d
                WHERE NOT EXISTS (SELECT FROM unnest(p_seeds || v_found) s(entity_id) WHERE s.entity_id = d.entity_id)
                ORDER BY d.entity_id IS NOT NULL, d.confidence DESC, d.entity_id LIMIT v_room + 2
            ) n;
        END IF;
        v_truncated := v_truncated OR coalesce(v_hubs, false) OR coalesce(cardinality(v_new), 0) > v_room;
        EXIT WHEN v_new IS NULL;
        v_front := v_new[:v_room];
        v_offset := cardinality(v_found);
        v_found := v_found || v_front;
        v_hops := v_hops || array_fill(v_level, ARRAY[cardinality(v_front)]);
        v_parents := v_parents || v_new_parents[:v_room];
        v_edges := v_edges || v_new_edges[:v_room];
        v_confidences := v_confidences || v_new_confidences[:v_room];
    END LOOP;
    RETURN QUERY
    SELECT u.entity_id, u.hops, u.edge_id, u.confidence,
           CASE u.hops WHEN 1 THEN ARRAY[u.edge_id]
                       WHEN 2 THEN ARRAY[v_edges[u.parent], u.edge_id]
                       ELSE ARRAY[v_edges[v_parents[u.parent]], v_edges[u.parent], u.edge_id] END,
           v_truncated
    FROM unnest(v_found, v_hops, v_edges, v_confidences, v_parents) u(entity_id, hops, edge_id, confidence, parent);
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION weigh_terms(
    p_tenant text, p_project text, p_kind text, p_query text, p_terms int,
    OUT terms text[], OUT documents bigint[], OUT total bigint, OUT average double precision)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
    v_language regconfig := project_language(p_tenant, p_project);
    v_rare text[];
    v_counts bigint[];
    v_length bigint;
BEGIN
    SELECT s.documents, s.total_length::double precision / nullif(s.documents, 0) INTO total, average
    FROM lexical_statistics s
    WHERE s.tenant_id = p_tenant AND s.project_id = p_project AND s.kind = p_kind AND s.documents > 0;
    IF NOT FOUND THEN
        IF p_kind = 'note' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT n.terms_length FROM memory_notes n
                WHERE n.tenant_id = p_tenant AND n.project_id = p_project AND n.deleted_at IS NULL LIMIT 20000) d;
        ELSIF p_kind = 'object' THEN
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT o.terms_length FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = ANY (main_branches(p_tenant, p_project))
                  AND o.deleted_at IS NULL LIMIT 20000) d;
        ELSE
            SELECT count(*), sum(d.terms_length) INTO total, v_length FROM (
                SELECT f.terms_length FROM graph_facts f
                WHERE f.tenant_id = p_tenant AND f.project_id = p_project AND f.retracted_at IS NULL LIMIT 20000) d;
        END IF;
        average := v_length::double precision / nullif(total, 0);
    END IF;
    average := greatest(coalesce(average, 1), 1);
    terms := ARRAY(
        SELECT t.lexeme FROM unnest(to_tsvector(v_language, p_query)) t
        ORDER BY t.positions[1], t.lexeme LIMIT p_terms);
    IF p_kind = 'object' AND EXISTS (
        SELECT FROM branches b JOIN graph_objects o ON o.tenant_id = p_tenant AND o.branch_id = b.branch_id
        WHERE b.tenant_id = p_tenant AND b.project_id IS NULL AND b.name = 'main') THEN
        -- What belongs to no project is found by its words as they are written.
        terms := ARRAY(
            SELECT t.lexeme FROM unnest(to_tsvector('simple', p_query)) t
            WHERE t.lexeme <> ALL (terms) AND to_tsvector(v_language, t.lexeme) <> ''::tsvector
            ORDER BY t.positions[1], t.lexeme LIMIT p_terms) || terms;
    END IF;
    v_rare := ARRAY(
        SELECT t.term FROM unnest(terms) t(term)
        WHERE NOT EXISTS (
            SELECT FROM lexical_frequencies l
            WHERE l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term)
        ORDER BY t.term);
    v_counts := count_documents(p_kind, v_rare, 2000);
    documents := ARRAY(
        SELECT coalesce(l.documents, v_counts[array_position(v_rare, t.term)], 0)
        FROM unnest(terms) WITH ORDINALITY t(term, place)
        LEFT JOIN lexical_frequencies l
            ON l.tenant_id = p_tenant AND l.project_id = p_project AND l.kind = p_kind AND l.term = t.term
        ORDER BY t.place);
    total := greatest(total, (SELECT max(d) FROM unnest(documents) d));
END
$$;
""",
)

# Functions with other arguments than before: made anew instead of replaced.
RETYPED: tuple[tuple[str, str], ...] = (
    (
        (
            "edges_now(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
            "timestamptz, bigint)"
        ),
        (
            "edges_now(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
            "double precision, timestamptz, bigint)"
        ),
    ),
    (
        (
            "edges_then(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
            "timestamptz, timestamptz, bigint)"
        ),
        (
            "edges_then(text, text, text, uuid, boolean, boolean, uuid[], double precision, double precision, "
            "double precision, timestamptz, timestamptz, bigint)"
        ),
    ),
    (
        (
            "walk_edges(text, text, text, uuid[], int, text, uuid[], double precision, double precision, "
            "timestamptz, timestamptz, int[], int)"
        ),
        (
            "walk_edges(text, text, text, uuid[], int, text, uuid[], double precision, double precision, double "
            "precision, timestamptz, timestamptz, int[], int)"
        ),
    ),
    (
        ("match_facts(text[], double precision[], text[], double precision, int, int, timestamptz, timestamptz, text)"),
        (
            "match_facts(text[], double precision[], text[], double precision, int, int, timestamptz, "
            "timestamptz, text, double precision, double precision)"
        ),
    ),
    (
        (
            "near_units(text, text, text, smallint, int, text, int, text, timestamptz, timestamptz, uuid[], "
            "double precision, double precision)"
        ),
        (
            "near_units(text, text, text, smallint, int, text, int, text, timestamptz, timestamptz, uuid[], "
            "double precision, double precision, boolean)"
        ),
    ),
    (
        (
            "recall_facts(text, text, text[], double precision[], double precision, smallint, text, uuid[], "
            "uuid[], uuid[], int, timestamptz, timestamptz, text, uuid, uuid[], double precision, double "
            "precision, int, uuid[])"
        ),
        (
            "recall_facts(text, text, text[], double precision[], double precision, smallint, text, uuid[], "
            "uuid[], uuid[], int, timestamptz, timestamptz, text, uuid, uuid[], double precision, double "
            "precision, int, uuid[], boolean)"
        ),
    ),
    (
        "recall_words(text, text, text, text, int, timestamptz, timestamptz, text)",
        (
            "recall_words(text, text, text, text, int, timestamptz, timestamptz, text, double precision, "
            "double precision, boolean)"
        ),
    ),
)
SIGNATURES: tuple[str, ...] = (
    (
        "facts_of(text, text, uuid, uuid[], text[], double precision[], timestamptz, timestamptz, text, "
        "double precision, double precision, boolean)"
    ),
    "fact_outdone(text, uuid, timestamptz, timestamptz, double precision, double precision)",
    "fold_words(text, boolean)",
    "note_terms_then(text, text, uuid, timestamptz)",
    "note_then(text, uuid, timestamptz)",
    "notes_about(text, text, uuid, text, timestamptz, int)",
)

# What was written before is read anew, by a job for each project: its words are looked for otherwise now.
REREAD = """
INSERT INTO jobs (tenant_id, job_id, project_id, kind, payload, dedupe_key, created_by, available_at, created_at)
SELECT p.tenant_id, make_id(), p.project_id, 'reindex', '{}', 'reindex', 'schedule', now(), now() FROM projects p
ON CONFLICT DO NOTHING
"""


def _make(functions: tuple[str, ...], *, gone: list[str], new: list[str]) -> None:
    for signature in gone:
        op.execute(f"DROP FUNCTION {signature}")
    for function in functions:
        execute_literal(function)
    for signature in new:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def upgrade() -> None:
    op.execute("ALTER TABLE memory_history ADD COLUMN before jsonb")
    op.execute("COMMENT ON COLUMN memory_history.before IS 'the other fields that changed, as they were'")
    _make(FUNCTIONS, gone=[before for before, _ in RETYPED], new=[now for _, now in RETYPED] + list(SIGNATURES))
    op.execute(REREAD)


def downgrade() -> None:
    gone = [now for _, now in RETYPED]
    _make(OLD_FUNCTIONS, gone=gone, new=[before for before, _ in RETYPED])
    for signature in SIGNATURES:
        op.execute(f"DROP FUNCTION {signature}")
    op.execute("ALTER TABLE memory_history DROP COLUMN before")
    op.execute(REREAD)
