"""Redaction that no pattern of a tenant can stop or make grow: its patterns see what a model could read of a text, none
matches inside what another has hidden, and a unit can be read on its own."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

FUNCTIONS: tuple[str, ...] = (
    r"""
CREATE OR REPLACE FUNCTION redact_text(
    p_text text, p_patterns text[], p_own text[] DEFAULT '{}', p_characters int DEFAULT NULL, OUT words text,
    OUT redactions int)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    -- Characters that are none, so that no text has them: what is hidden, and the two ends of what a pattern finds.
    c_hidden CONSTANT text := E'\uFDD0';
    c_begin CONSTANT text := E'\uFDD1';
    c_end CONSTANT text := E'\uFDD2';
    v_patterns CONSTANT text[] := p_patterns || p_own;
    v_cut boolean := false;
    v_marked text;
BEGIN
    words := replace(translate(p_text, c_hidden || c_begin || c_end, ''), '[REDACTED]', c_hidden);
    redactions := 0;
    FOR i IN 1 .. cardinality(v_patterns) LOOP
        IF i = cardinality(p_patterns) + 1 AND length(words) > p_characters THEN
            v_cut := true;
            words := left(words, p_characters);
        END IF;
        -- Searched once: marks are cheaper to count than matches.
        v_marked := replace(regexp_replace(words, v_patterns[i], c_begin || '\&' || c_end, 'gi'), c_begin || c_end, '');
        IF v_marked <> words THEN
            v_marked := regexp_replace(v_marked, c_begin || '(' || c_hidden || '+)' || c_end, '\1', 'g');
            redactions := redactions + length(v_marked) - length(replace(v_marked, c_end, ''));
            words := regexp_replace(v_marked, c_begin || '[^' || c_end || ']*' || c_end, c_hidden, 'g');
        END IF;
    END LOOP;
    IF v_cut THEN
        -- Before it is written out: each character stands for one of the text at least, so this is a quarter or more.
        words := left(words, greatest(0, length(words) - p_characters / 4)) || c_hidden;
    END IF;
    words := regexp_replace(words, c_hidden || '+', '[REDACTED]', 'g');
END
$$;
""",
    """
CREATE OR REPLACE FUNCTION read_units(
    p_model smallint, p_limit int, p_min double precision, p_patterns text[], p_characters int,
    p_owner uuid DEFAULT NULL)
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
          AND (p_owner IS NULL OR q.owner_id = p_owner)
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
    LEFT JOIN LATERAL redact_text(u.said, p_patterns, v_own, p_characters) r ON u.said IS NOT NULL
    LEFT JOIN LATERAL redact_text(u.author, p_patterns, v_own, p_characters) a ON u.author IS NOT NULL
    LEFT JOIN embeddings e
        ON e.tenant_id = v_tenant AND e.model_id = p_model AND e.view = 'self' AND e.owner_kind = q.owner_kind
       AND e.owner_id = q.owner_id;
END
$$;
""",
)

# As they were before.
OLD_FUNCTIONS: tuple[str, ...] = (
    """
CREATE OR REPLACE FUNCTION redact_text(p_text text, p_patterns text[], OUT words text, OUT redactions int)
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
    v_pattern text;
    v_found int;
BEGIN
    words := p_text;
    redactions := 0;
    FOREACH v_pattern IN ARRAY p_patterns LOOP
        v_found := regexp_count(words, v_pattern, 1, 'i');
        IF v_found > 0 THEN
            words := regexp_replace(words, v_pattern, '[REDACTED]', 'gi');
            redactions := redactions + v_found;
        END IF;
    END LOOP;
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
)

# Functions whose arguments are others now, before and after.
RETYPED: tuple[tuple[str, str], ...] = (
    ("redact_text(text, text[])", "redact_text(text, text[], text[], int)"),
    (
        "read_units(smallint, int, double precision, text[])",
        "read_units(smallint, int, double precision, text[], int, uuid)",
    ),
)


def _make(functions: tuple[str, ...], *, gone: list[str], new: list[str]) -> None:
    for signature in gone:
        op.execute(f"DROP FUNCTION {signature}")
    for function in functions:
        execute_literal(function)
    for signature in new:
        op.execute(f"REVOKE EXECUTE ON FUNCTION {signature} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {signature} TO {APP_ROLE}")


def upgrade() -> None:
    _make(FUNCTIONS, gone=[before for before, _ in RETYPED], new=[now for _, now in RETYPED])


def downgrade() -> None:
    _make(OLD_FUNCTIONS, gone=[now for _, now in RETYPED], new=[before for before, _ in RETYPED])
