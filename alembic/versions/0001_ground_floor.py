"""Ground floor: tenants, projects, keys, gardens, the HTTP edge's own tables, and the queue."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import APP_ROLE, Rule, enable_tenant_rls

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE tenants (
    tenant_id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT tenants_pkey PRIMARY KEY (tenant_id),
    CONSTRAINT tenants_tenant_id_check CHECK (tenant_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$')
);
CREATE TABLE projects (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    settings JSONB DEFAULT '{}' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT projects_pkey PRIMARY KEY (tenant_id, project_id),
    CONSTRAINT projects_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id),
    CONSTRAINT projects_project_id_check CHECK (project_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$')
);
CREATE TABLE api_keys (
    tenant_id TEXT NOT NULL,
    key_id UUID NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    project_id TEXT,
    scopes TEXT[] NOT NULL,
    rate_limits JSONB DEFAULT '{}' NOT NULL,
    secret_hash BYTEA NOT NULL,
    previous_hash BYTEA,
    previous_until TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    rotated_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_keys_pkey PRIMARY KEY (tenant_id, key_id),
    CONSTRAINT api_keys_tenant_id_fkey FOREIGN KEY(tenant_id) REFERENCES tenants (tenant_id),
    CONSTRAINT api_keys_tenant_id_project_id_fkey FOREIGN KEY(tenant_id, project_id)
        REFERENCES projects (tenant_id, project_id),
    CONSTRAINT api_keys_kind_check CHECK (kind IN ('agent', 'admin')),
    CONSTRAINT api_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32)
);
COMMENT ON COLUMN api_keys.project_id IS 'NULL: the key spans all projects of the tenant';
COMMENT ON COLUMN api_keys.secret_hash IS 'SHA-256 of the secret; the secret is stored nowhere';
COMMENT ON COLUMN api_keys.previous_hash IS 'after a rotation with grace';
CREATE INDEX api_keys_lookup_idx ON api_keys (key_id);
CREATE TABLE platform_keys (
    key_id UUID NOT NULL,
    secret_hash BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT platform_keys_pkey PRIMARY KEY (key_id),
    CONSTRAINT platform_keys_secret_hash_check CHECK (octet_length(secret_hash) = 32)
);
CREATE TABLE gardens (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    garden_id UUID NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    description TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT gardens_pkey PRIMARY KEY (tenant_id, garden_id),
    CONSTRAINT gardens_slug_key UNIQUE (tenant_id, project_id, slug),
    CONSTRAINT gardens_project_key UNIQUE (tenant_id, project_id, garden_id),
    CONSTRAINT gardens_tenant_id_project_id_fkey FOREIGN KEY(tenant_id, project_id)
        REFERENCES projects (tenant_id, project_id),
    CONSTRAINT gardens_slug_check CHECK (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT gardens_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public'))
);
CREATE TABLE garden_members (
    tenant_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    garden_id UUID NOT NULL,
    agent_id TEXT NOT NULL,
    role TEXT NOT NULL,
    added_by TEXT NOT NULL,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT garden_members_pkey PRIMARY KEY (tenant_id, garden_id, agent_id),
    CONSTRAINT garden_members_tenant_id_project_id_garden_id_fkey FOREIGN KEY(tenant_id, project_id, garden_id)
        REFERENCES gardens (tenant_id, project_id, garden_id) ON DELETE CASCADE,
    CONSTRAINT garden_members_role_check CHECK (role IN ('admin', 'writer', 'reader'))
);
CREATE INDEX garden_members_agent_idx ON garden_members (tenant_id, project_id, agent_id);
CREATE TABLE idempotency_keys (
    tenant_id TEXT NOT NULL,
    key_id UUID NOT NULL,
    method TEXT NOT NULL,
    path TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    request_hash BYTEA NOT NULL,
    status SMALLINT,
    body BYTEA,
    sealed BOOLEAN NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT idempotency_keys_pkey PRIMARY KEY (tenant_id, key_id, method, path, idempotency_key),
    CONSTRAINT idempotency_keys_idempotency_key_check CHECK (char_length(idempotency_key) <= 255)
);
COMMENT ON COLUMN idempotency_keys.status IS 'NULL only inside the transaction of the effect';
COMMENT ON COLUMN idempotency_keys.sealed IS 'the body is encrypted with the caller''s secret';
CREATE INDEX idempotency_keys_expiry_idx ON idempotency_keys (tenant_id, expires_at);
CREATE TABLE rate_windows (
    tenant_id TEXT NOT NULL,
    key_id UUID NOT NULL,
    work TEXT NOT NULL,
    slots BIGINT[] NOT NULL,
    counts INTEGER[] NOT NULL,
    CONSTRAINT rate_windows_pkey PRIMARY KEY (tenant_id, key_id, work),
    CONSTRAINT rate_windows_tenant_id_key_id_fkey FOREIGN KEY(tenant_id, key_id)
        REFERENCES api_keys (tenant_id, key_id)
);
CREATE TABLE service_secrets (
    name TEXT NOT NULL,
    secret BYTEA NOT NULL,
    CONSTRAINT service_secrets_pkey PRIMARY KEY (name)
);
CREATE TABLE jobs (
    tenant_id TEXT NOT NULL,
    job_id UUID NOT NULL,
    project_id TEXT,
    agent_id TEXT DEFAULT '' NOT NULL,
    kind TEXT NOT NULL,
    status TEXT DEFAULT 'pending' NOT NULL,
    payload JSONB NOT NULL,
    priority SMALLINT DEFAULT 0 NOT NULL,
    dedupe_key TEXT,
    available_at TIMESTAMP WITH TIME ZONE NOT NULL,
    attempts INTEGER DEFAULT 0 NOT NULL,
    max_attempts INTEGER DEFAULT 5 NOT NULL,
    lease_owner TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    created_by TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT jobs_pkey PRIMARY KEY (tenant_id, job_id),
    CONSTRAINT jobs_status_check CHECK (status IN ('pending', 'leased', 'completed', 'failed', 'dead', 'cancelled')),
    CONSTRAINT jobs_kind_check CHECK (kind ~ '^[a-z][a-z0-9_]{0,62}$'),
    CONSTRAINT jobs_lease_check CHECK ((status = 'leased') = (lease_owner IS NOT NULL)),
    CONSTRAINT jobs_attempts_check CHECK (attempts >= 0 AND max_attempts >= 1)
);
COMMENT ON COLUMN jobs.project_id IS 'NULL: the job is the whole tenant''s';
COMMENT ON COLUMN jobs.created_by IS 'the id of the key whose request made it, or schedule';
CREATE INDEX jobs_dead_idx ON jobs (kind) WHERE status = 'dead';
CREATE INDEX jobs_due_idx ON jobs (tenant_id, kind, available_at) WHERE status = 'pending';
CREATE INDEX jobs_finished_idx ON jobs (tenant_id, finished_at) WHERE status IN ('completed', 'cancelled');
CREATE INDEX jobs_leased_idx ON jobs (lease_expires_at) WHERE status = 'leased';
CREATE INDEX jobs_list_idx ON jobs (tenant_id, created_at, job_id);
CREATE UNIQUE INDEX jobs_open_key ON jobs (tenant_id, project_id, kind, dedupe_key) NULLS NOT DISTINCT
    WHERE status IN ('pending', 'leased') AND dedupe_key IS NOT NULL;
CREATE INDEX jobs_turn_idx ON jobs (tenant_id, kind, priority DESC, available_at, job_id) WHERE status = 'pending';
"""

POLICIES = (
    ("tenants", Rule.TENANT, "SELECT, INSERT, UPDATE"),
    ("projects", Rule.REACH, "SELECT, INSERT, UPDATE"),
    ("api_keys", Rule.REACH, "SELECT, INSERT, UPDATE"),
    ("gardens", Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    ("garden_members", Rule.PROJECT, "SELECT, INSERT, UPDATE, DELETE"),
    ("idempotency_keys", Rule.TENANT, "SELECT, INSERT, UPDATE, DELETE"),
    ("rate_windows", Rule.TENANT, "SELECT, INSERT, UPDATE, DELETE"),
    ("jobs", Rule.REACH, "SELECT, INSERT, UPDATE, DELETE"),
)

# Frozen copies of alembic/functions/ as of this migration, in the order they need each other.
FUNCTIONS = {
    "set_scope": r"""
-- Sets the five settings that every policy reads, for this transaction only.
-- SET LOCAL and not set_config: on a distributed PostgreSQL only the former reaches the shards.
CREATE OR REPLACE FUNCTION set_scope(p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    EXECUTE format(
        'SET LOCAL app.tenant_id = %L; SET LOCAL app.project_id = %L; SET LOCAL app.agent_id = %L; '
        'SET LOCAL app.gardens = %L; SET LOCAL app.reach = %L',
        coalesce(p_tenant, ''), coalesce(p_project, ''), coalesce(p_agent, ''),
        coalesce(p_gardens, '{}'), coalesce(p_reach, ''));
END
$$;
""",
    "authenticate": r"""
-- Looks a key up across tenants and answers who holds it, in which project, with which gardens.
-- Returns one row; outcome says ok, unknown, revoked, expired, project_unknown or project_forbidden.
-- What a wrong secret could learn is nothing: every failure before the secret matches reads unknown.
CREATE OR REPLACE FUNCTION authenticate(p_key_id uuid, p_secret_hash bytea, p_project text)
RETURNS TABLE (
    outcome text, tenant_id text, project_id text, key_project text, kind text, agent_id text,
    scopes text[], gardens uuid[], rate_limits jsonb)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    k public.api_keys%ROWTYPE;
    v_project text;
    v_gardens uuid[];
BEGIN
    SELECT * INTO k FROM public.api_keys a WHERE a.key_id = p_key_id;
    IF NOT FOUND THEN
        IF EXISTS (SELECT FROM public.platform_keys p
                   WHERE p.key_id = p_key_id AND p.secret_hash = p_secret_hash AND p.revoked_at IS NULL) THEN
            RETURN QUERY SELECT 'ok', NULL::text, NULL::text, NULL::text, 'platform', NULL::text,
                                '{}'::text[], '{}'::uuid[], '{}'::jsonb;
        ELSE
            RETURN QUERY SELECT 'unknown', NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
                                NULL::text[], NULL::uuid[], NULL::jsonb;
        END IF;
        RETURN;
    END IF;

    IF k.secret_hash <> p_secret_hash AND NOT coalesce(
            k.previous_hash = p_secret_hash AND k.previous_until > clock_timestamp(), false) THEN
        outcome := 'unknown';
    ELSIF k.revoked_at IS NOT NULL THEN
        outcome := 'revoked';
    ELSIF k.expires_at <= clock_timestamp() THEN
        outcome := 'expired';
    ELSIF k.project_id IS NOT NULL AND p_project <> '' AND p_project <> k.project_id THEN
        outcome := 'project_forbidden';
    ELSIF k.project_id IS NULL AND p_project <> '' AND NOT EXISTS (
            SELECT FROM public.projects p WHERE p.tenant_id = k.tenant_id AND p.project_id = p_project) THEN
        outcome := 'project_unknown';
    ELSE
        outcome := 'ok';
        v_project := coalesce(k.project_id, nullif(p_project, ''));
        IF v_project IS NULL THEN
            NULL;
        ELSIF k.kind = 'admin' THEN
            SELECT array_agg(g.garden_id) INTO v_gardens FROM public.gardens g
            WHERE g.tenant_id = k.tenant_id AND g.project_id = v_project;
        ELSE
            SELECT array_agg(m.garden_id) INTO v_gardens FROM public.garden_members m
            WHERE m.tenant_id = k.tenant_id AND m.project_id = v_project AND m.agent_id = k.agent_id;
        END IF;
        tenant_id := k.tenant_id;
        project_id := v_project;
        key_project := k.project_id;
        kind := k.kind;
        agent_id := k.agent_id;
        scopes := k.scopes;
        gardens := coalesce(v_gardens, '{}');
        rate_limits := k.rate_limits;
    END IF;
    RETURN NEXT;
END
$$;
""",
    "reserve_tokens": r"""
-- Reserves a block of rate tokens for one replica, so that requests are counted in memory and not in a row.
-- A minute is 30 slots of two seconds; a token lives only in its slot, and what is granted in any 31 slots in a
-- row never exceeds the limit, so no window of 60 seconds, wherever it starts, sees more.
CREATE OR REPLACE FUNCTION reserve_tokens(
    p_tenant text, p_key uuid, p_work text, p_limit int, p_want int, p_returned int, p_returned_slot bigint)
RETURNS TABLE (granted int, slot bigint, slot_ends_ms int, retry_ms int)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    v_now_ms bigint;
    v_slot bigint;
    v_slots bigint[];
    v_counts int[];
    v_used int;
BEGIN
    PERFORM set_scope(p_tenant, '', '', NULL, '');
    INSERT INTO rate_windows (tenant_id, key_id, work, slots, counts)
    VALUES (p_tenant, p_key, p_work, '{}', '{}') ON CONFLICT DO NOTHING;
    SELECT w.slots, w.counts INTO v_slots, v_counts FROM rate_windows w
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work FOR UPDATE;
    -- Read after the lock: slots are granted in the order of this clock.
    v_now_ms := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_slot := v_now_ms / 2000;

    SELECT coalesce(array_agg(s.slot ORDER BY s.slot), '{}'), coalesce(array_agg(s.left_over ORDER BY s.slot), '{}'),
           coalesce(sum(s.left_over), 0)
    INTO v_slots, v_counts, v_used
    FROM (SELECT u.slot, u.count - CASE WHEN u.slot = p_returned_slot THEN least(p_returned, u.count) ELSE 0 END
                 AS left_over
          FROM unnest(v_slots, v_counts) AS u (slot, count)) s
    WHERE s.slot > v_slot - 31 AND s.left_over > 0;

    granted := greatest(0, least(p_want, p_limit - v_used));
    IF granted > 0 THEN
        IF v_slots[cardinality(v_slots)] = v_slot THEN
            v_counts[cardinality(v_counts)] := v_counts[cardinality(v_counts)] + granted;
        ELSE
            v_slots := v_slots || v_slot;
            v_counts := v_counts || granted;
        END IF;
    END IF;
    UPDATE rate_windows w SET slots = v_slots, counts = v_counts
    WHERE w.tenant_id = p_tenant AND w.key_id = p_key AND w.work = p_work;

    slot := v_slot;
    slot_ends_ms := (v_slot + 1) * 2000 - v_now_ms;
    retry_ms := CASE WHEN granted > 0 THEN 0
                     ELSE greatest(1, (coalesce(v_slots[1], v_slot) + 31) * 2000 - v_now_ms) END;
    RETURN NEXT;
END
$$;
""",
    "read_job": r"""
-- Hot path: sets the scope and answers one job, in one call. Never the payload, which may hold content.
CREATE OR REPLACE FUNCTION read_job(
    p_tenant text, p_project text, p_agent text, p_gardens uuid[], p_reach text, p_job uuid)
RETURNS TABLE (
    job_id uuid, project_id text, kind text, status text, priority smallint, attempts int, max_attempts int,
    created_by text, last_error text, created_at timestamptz, available_at timestamptz, started_at timestamptz,
    finished_at timestamptz)
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    PERFORM set_scope(p_tenant, p_project, p_agent, p_gardens, p_reach);
    RETURN QUERY
    SELECT j.job_id, j.project_id, j.kind, j.status, j.priority, j.attempts, j.max_attempts, j.created_by, j.last_error,
           j.created_at, j.available_at, j.started_at, j.finished_at
    FROM jobs j WHERE j.tenant_id = p_tenant AND j.job_id = p_job;
END
$$;
""",
    "lease_jobs": r"""
-- Leases due jobs across tenants, in one call: tenants with due work of these kinds in turn after p_after (and round
-- again), an equal share each. The turn is the caller's cursor and no row, so workers never wait for each other; a
-- flood in one tenant costs the others at most its turn.
-- At most 500 tenants are looked at in one call. When none of them had work, one row without a job says how far we
-- got, so that the next call goes on from there.
-- p_owner is new for every call: it is the fence that lets only this lease end the job.
-- The lease itself need not survive a crash (a lost one is only taken again), so its commit does not wait for disk.
CREATE OR REPLACE FUNCTION lease_jobs(p_owner text, p_kinds text[], p_limit int, p_lease interval, p_after text)
RETURNS TABLE (
    tenant_id text, job_id uuid, project_id text, agent_id text, kind text, payload jsonb, attempts int,
    max_attempts int, waited interval)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
    v_cursor text := coalesce(p_after, '');
    v_wrapped boolean := v_cursor = '';
    v_looked int := 0;
    v_tenant text;
    v_tenants text[] := '{}';
    v_left int := p_limit;
    v_taken int;
    v_index int := 0;
BEGIN
    SET LOCAL synchronous_commit = off;
    WHILE cardinality(v_tenants) < p_limit LOOP
        IF v_looked = 500 THEN
            IF cardinality(v_tenants) = 0 THEN
                tenant_id := v_cursor;
                RETURN NEXT;
            END IF;
            EXIT;
        END IF;
        v_looked := v_looked + 1;
        SELECT j.tenant_id INTO v_tenant FROM public.jobs j
        WHERE j.status = 'pending' AND j.tenant_id > v_cursor ORDER BY j.tenant_id LIMIT 1;
        IF NOT FOUND THEN
            EXIT WHEN v_wrapped;
            v_wrapped := true;
            v_cursor := '';
            CONTINUE;
        END IF;
        EXIT WHEN v_wrapped AND coalesce(p_after, '') <> '' AND v_tenant > p_after;
        v_cursor := v_tenant;
        IF EXISTS (SELECT FROM public.jobs j WHERE j.tenant_id = v_tenant AND j.kind = ANY (p_kinds)
                   AND j.status = 'pending' AND j.available_at <= v_now) THEN
            v_tenants := v_tenants || v_tenant;
        END IF;
    END LOOP;

    FOREACH v_tenant IN ARRAY v_tenants LOOP
        EXIT WHEN v_left <= 0;
        v_taken := ceil(v_left::numeric / (cardinality(v_tenants) - v_index));
        RETURN QUERY
        WITH pick AS (
            SELECT x.job_id FROM unnest(p_kinds) k CROSS JOIN LATERAL (
                SELECT j.job_id, j.priority, j.available_at FROM public.jobs j
                WHERE j.tenant_id = v_tenant AND j.kind = k AND j.status = 'pending' AND j.available_at <= v_now
                ORDER BY j.priority DESC, j.available_at, j.job_id
                LIMIT v_taken
                FOR UPDATE SKIP LOCKED) x
            ORDER BY x.priority DESC, x.available_at, x.job_id LIMIT v_taken)
        UPDATE public.jobs j
        SET status = 'leased', lease_owner = p_owner, lease_expires_at = v_now + p_lease,
            attempts = j.attempts + 1, started_at = v_now
        FROM pick WHERE j.tenant_id = v_tenant AND j.job_id = pick.job_id
        RETURNING j.tenant_id, j.job_id, j.project_id, j.agent_id, j.kind, j.payload, j.attempts, j.max_attempts,
                  v_now - j.available_at;
        GET DIAGNOSTICS v_taken = ROW_COUNT;
        v_left := v_left - v_taken;
        v_index := v_index + 1;
    END LOOP;
END
$$;
""",
    "renew_leases": r"""
-- Heartbeat: extends the leases a worker names, across tenants, and answers which of them it still holds. A lease it
-- does not name runs out: that is how a job whose end could not be recorded comes back.
CREATE OR REPLACE FUNCTION renew_leases(p_tenants text[], p_jobs uuid[], p_owners text[], p_lease interval)
RETURNS TABLE (job_id uuid, lease_owner text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    SET LOCAL synchronous_commit = off;
    RETURN QUERY
    UPDATE public.jobs j SET lease_expires_at = clock_timestamp() + p_lease
    FROM unnest(p_tenants, p_jobs, p_owners) AS held (tenant_id, job_id, lease_owner)
    WHERE j.tenant_id = held.tenant_id AND j.job_id = held.job_id AND j.lease_owner = held.lease_owner
      AND j.status = 'leased'
    RETURNING j.job_id, j.lease_owner;
END
$$;
""",
    "reap_leases": r"""
-- Reaper: returns jobs whose lease ran out to the queue, across tenants; one that has used up its attempts is dead.
CREATE OR REPLACE FUNCTION reap_leases(p_limit int)
RETURNS TABLE (tenant_id text, job_id uuid, status text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    WITH pick AS (
        SELECT j.tenant_id, j.job_id FROM public.jobs j
        WHERE j.status = 'leased' AND j.lease_expires_at < v_now
        ORDER BY j.lease_expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED)
    UPDATE public.jobs j
    SET status = CASE WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
        finished_at = CASE WHEN j.attempts >= j.max_attempts THEN v_now END,
        available_at = v_now, lease_owner = NULL, lease_expires_at = NULL,
        last_error = 'lease_expired: the worker stopped answering'
    FROM pick WHERE j.tenant_id = pick.tenant_id AND j.job_id = pick.job_id
    RETURNING j.tenant_id, j.job_id, j.status;
END
$$;
""",
    "finish_job": r"""
-- Hot path: ends one job in its tenant's scope, in one call, if and only if the caller still holds its lease.
-- p_status completed, failed, dead, or pending with the time of the next attempt. Answers false when the lease is lost.
CREATE OR REPLACE FUNCTION finish_job(
    p_tenant text, p_project text, p_job uuid, p_owner text, p_status text, p_error text,
    p_available_at timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    PERFORM set_scope(p_tenant, p_project, '', NULL, CASE WHEN p_project IS NULL THEN 'cross_project' ELSE '' END);
    UPDATE jobs j
    SET status = p_status, last_error = p_error, lease_owner = NULL, lease_expires_at = NULL,
        available_at = coalesce(p_available_at, j.available_at),
        attempts = CASE WHEN p_status = 'pending' AND p_error IS NULL THEN j.attempts - 1 ELSE j.attempts END,
        finished_at = CASE WHEN p_status = 'pending' THEN NULL ELSE v_now END
    WHERE j.tenant_id = p_tenant AND j.job_id = p_job AND j.status = 'leased'
      AND j.lease_owner = p_owner;
    RETURN FOUND;
END
$$;
""",
    "schedule_maintenance": r"""
-- Schedule: one maintenance job for each tenant that has something to clear away and none open, across tenants.
CREATE OR REPLACE FUNCTION schedule_maintenance(p_jobs_before timestamptz, p_windows_before bigint)
RETURNS TABLE (tenant_id text, job_id uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
    v_now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    INSERT INTO public.jobs AS j (tenant_id, job_id, kind, payload, dedupe_key, created_by, available_at, created_at)
    SELECT t.tenant_id, gen_random_uuid(), 'maintenance', '{}', 'maintenance', 'schedule', v_now, v_now
    FROM public.tenants t
    WHERE EXISTS (SELECT FROM public.idempotency_keys i WHERE i.tenant_id = t.tenant_id AND i.expires_at <= v_now)
       OR EXISTS (SELECT FROM public.jobs f WHERE f.tenant_id = t.tenant_id
                  AND f.status IN ('completed', 'cancelled') AND f.finished_at < p_jobs_before)
       OR EXISTS (SELECT FROM public.rate_windows w WHERE w.tenant_id = t.tenant_id
                  AND coalesce(w.slots[cardinality(w.slots)], 0) < p_windows_before)
    ON CONFLICT DO NOTHING
    RETURNING j.tenant_id, j.job_id;
END
$$;
""",
    "list_tenants": r"""
-- Tenant list, across tenants, for the platform key and the command line; pages by tenant_id.
CREATE OR REPLACE FUNCTION list_tenants(p_after text, p_limit int)
RETURNS TABLE (tenant_id text, name text, created_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT t.tenant_id, t.name, t.created_at FROM public.tenants t
    WHERE t.tenant_id > coalesce(p_after, '') ORDER BY t.tenant_id LIMIT p_limit;
END
$$;
""",
    "queue_metrics": r"""
-- Queue metrics over all tenants: open, leased and dead jobs by kind, and the age of the oldest due one.
-- Names no tenant; each part reads a partial index, never the finished jobs.
CREATE OR REPLACE FUNCTION queue_metrics()
RETURNS TABLE (kind text, status text, jobs bigint, oldest_seconds double precision)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path = pg_catalog, public, pg_temp
SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
    RETURN QUERY
    SELECT j.kind, 'pending', count(*), greatest(0, extract(epoch FROM clock_timestamp() - min(j.available_at)))::float8
    FROM public.jobs j WHERE j.status = 'pending' GROUP BY j.kind
    UNION ALL
    SELECT j.kind, 'leased', count(*), NULL::float8 FROM public.jobs j WHERE j.status = 'leased' GROUP BY j.kind
    UNION ALL
    SELECT j.kind, 'dead', count(*), NULL::float8 FROM public.jobs j WHERE j.status = 'dead' GROUP BY j.kind;
END
$$;
""",
}


def upgrade() -> None:
    execute_literal(TABLES)
    for table, rule, grants in POLICIES:
        enable_tenant_rls(op.execute, table, rule=rule, grants=grants)
    op.execute(f"GRANT SELECT ON service_secrets, alembic_version TO {APP_ROLE}")
    # Two random UUIDs carry 244 random bits: enough for a signing secret, without an extension.
    op.execute(
        "INSERT INTO service_secrets (name, secret) "
        "VALUES ('cursor', sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')))"
    )
    for name, body in FUNCTIONS.items():
        execute_literal(body)
        op.execute(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
        op.execute(f"GRANT EXECUTE ON FUNCTION {name} TO {APP_ROLE}")


def downgrade() -> None:
    op.execute(f"REVOKE SELECT ON alembic_version FROM {APP_ROLE}")
    for name in reversed(FUNCTIONS):
        op.execute(f"DROP FUNCTION {name}")
    op.execute(
        "DROP TABLE jobs, service_secrets, rate_windows, idempotency_keys, garden_members, gardens, platform_keys, "
        "api_keys, projects, tenants"
    )
