-- Hides or restores these objects and relationships by the tombstones of the entities that are bound to them or that
-- they name (see object_levels): their heads and versions on every branch, the relationships that start or end there,
-- their vectors and their mentions. What comes back while another one took its key or its place meanwhile comes back
-- deleted, with a version that says so: what stands keeps its place.
-- Runs with the rights of its caller (see settle_objects).
CREATE OR REPLACE FUNCTION restore_objects(p_tenant text, p_objects uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_agent text := coalesce(current_setting('app.agent_id', true), '');
    v_now timestamptz := clock_timestamp();
    v_hidden uuid[];
    v_changed uuid[];
    v_edges uuid[];
    v_levels smallint[];
    v_head record;
BEGIN
    -- Whoever changes one of them finishes first; who comes later sees that it is hidden.
    PERFORM FROM graph_objects o
    JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_object_versions v
          WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects)) v
        ON v.branch_id = o.branch_id AND v.canonical_id = o.canonical_id
    WHERE o.tenant_id = p_tenant ORDER BY o.canonical_id, o.branch_id FOR UPDATE OF o;
    v_changed := ARRAY(
        SELECT l.id FROM object_levels(p_tenant, p_objects) l
        WHERE EXISTS (SELECT FROM graph_object_versions v
                      WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level));
    v_edges := ARRAY(
        SELECT DISTINCT v.canonical_id FROM graph_relationship_versions v
        WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (p_objects));

    -- 1. Objects: those to be hidden at once, those that come back one after the other.
    IF cardinality(v_changed) > 0 THEN
        v_edges := v_edges || ARRAY(
            SELECT DISTINCT r.canonical_id FROM graph_relationships r
            WHERE r.tenant_id = p_tenant AND (r.src_id = ANY (v_changed) OR r.dst_id = ANY (v_changed)));
        v_hidden := ARRAY(SELECT l.id FROM object_levels(p_tenant, v_changed) l WHERE l.level > 0);
        UPDATE graph_objects o SET suppression = l.level FROM object_levels(p_tenant, v_hidden) l
        WHERE o.tenant_id = p_tenant AND o.canonical_id = l.id AND o.suppression <> l.level;
        FOR v_head IN
            SELECT o.* FROM graph_objects o
            WHERE o.tenant_id = p_tenant AND o.canonical_id = ANY (v_changed) AND o.canonical_id <> ALL (v_hidden)
              AND o.suppression > 0
            ORDER BY o.created_at, o.canonical_id, o.branch_id
        LOOP
            IF v_head.deleted_at IS NULL AND EXISTS (
                SELECT FROM graph_objects o
                WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.type = v_head.type
                  AND o.key = v_head.key AND o.deleted_at IS NULL AND o.suppression = 0) THEN
                PERFORM retire_object(p_tenant, v_head.branch_id, v_head.canonical_id, v_agent, v_now);
            END IF;
            UPDATE graph_objects o SET suppression = 0
            WHERE o.tenant_id = p_tenant AND o.branch_id = v_head.branch_id AND o.canonical_id = v_head.canonical_id;
            PERFORM queue_units(p_tenant, v_head.project_id, 'object', ARRAY[v_head.canonical_id]);
        END LOOP;
        UPDATE graph_object_versions v SET suppression = l.level FROM object_levels(p_tenant, v_changed) l
        WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
        -- What is hidden has no vector: to mark it would cost the index as much as to make it anew.
        DELETE FROM embeddings x
        WHERE x.tenant_id = p_tenant AND x.model_id IN (SELECT m.model_id FROM embedding_models m) AND x.view = 'self'
          AND x.owner_kind = 'object' AND x.owner_id = ANY (v_hidden);
        DELETE FROM embedding_queue q
        USING (SELECT DISTINCT v.project_id FROM graph_object_versions v
               WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_hidden)) p
        WHERE q.tenant_id = p_tenant AND q.project_id = p.project_id
          AND q.model_id IN (SELECT m.model_id FROM embedding_models m) AND q.owner_kind = 'object'
          AND q.owner_id = ANY (v_hidden);
    END IF;

    -- 2. Relationships: as hidden as the most hidden of what they say and of their ends.
    IF cardinality(v_edges) > 0 THEN
        PERFORM FROM graph_relationships r
        JOIN (SELECT DISTINCT v.branch_id, v.canonical_id FROM graph_relationship_versions v
              WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_edges)) v
            ON v.branch_id = r.branch_id AND v.canonical_id = r.canonical_id
        WHERE r.tenant_id = p_tenant ORDER BY r.canonical_id, r.branch_id FOR UPDATE OF r;
        WITH ends AS MATERIALIZED (
            SELECT DISTINCT v.canonical_id AS edge, x.id FROM graph_relationship_versions v
            CROSS JOIN LATERAL (VALUES (v.canonical_id), (v.src_id), (v.dst_id)) x(id)
            WHERE v.tenant_id = p_tenant AND v.canonical_id = ANY (v_edges)
        ), settled AS (
            SELECT e.edge, CASE WHEN bool_or(l.level = 1) THEN 1 WHEN bool_or(l.level = 2) THEN 2 ELSE 0 END AS level
            FROM ends e JOIN object_levels(p_tenant, ARRAY(SELECT x.id FROM ends x)) l ON l.id = e.id
            GROUP BY e.edge
        )
        SELECT array_agg(s.edge), array_agg(s.level::smallint) INTO v_edges, v_levels FROM settled s;
        UPDATE graph_relationships r SET suppression = l.level FROM unnest(v_edges, v_levels) l(id, level)
        WHERE r.tenant_id = p_tenant AND r.canonical_id = l.id AND l.level > 0 AND r.suppression <> l.level;
        FOR v_head IN
            SELECT r.* FROM graph_relationships r JOIN unnest(v_edges, v_levels) l(id, level) ON l.id = r.canonical_id
            WHERE r.tenant_id = p_tenant AND l.level = 0 AND r.suppression > 0
            ORDER BY r.created_at, r.canonical_id, r.branch_id
        LOOP
            IF v_head.deleted_at IS NULL AND EXISTS (
                SELECT FROM graph_relationships r
                WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.src_id = v_head.src_id
                  AND r.type = v_head.type AND (r.dst_id = v_head.dst_id OR (r.one_src AND v_head.one_src))
                  AND r.deleted_at IS NULL AND r.suppression = 0
                UNION ALL
                SELECT FROM graph_relationships r
                WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.dst_id = v_head.dst_id
                  AND r.type = v_head.type AND r.one_dst AND v_head.one_dst
                  AND r.deleted_at IS NULL AND r.suppression = 0) THEN
                PERFORM retire_relationship(p_tenant, v_head.branch_id, v_head.canonical_id, v_agent, v_now);
            END IF;
            UPDATE graph_relationships r SET suppression = 0
            WHERE r.tenant_id = p_tenant AND r.branch_id = v_head.branch_id AND r.canonical_id = v_head.canonical_id;
        END LOOP;
        UPDATE graph_relationship_versions v SET suppression = l.level FROM unnest(v_edges, v_levels) l(id, level)
        WHERE v.tenant_id = p_tenant AND v.canonical_id = l.id AND v.suppression <> l.level;
    END IF;

    UPDATE object_entity_mentions x SET suppression = l.level FROM object_levels(p_tenant, p_objects || v_edges) l
    WHERE x.tenant_id = p_tenant AND x.canonical_id = l.id AND x.suppression <> l.level;
END
$$;
