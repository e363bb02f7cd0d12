"""All SQL of users and threads."""

from sqlalchemy import text

# Users with what each has, in the order of their ids; `only` is one of them.
USERS = "SELECT * FROM list_users(%(tenant)s, %(project)s, %(after)s, %(only)s, %(limit)s, %(most)s)"
# The ids of users; for counting them, nothing else of each is counted.
USER_IDS = "SELECT user_id FROM list_users(%(tenant)s, %(project)s, %(after)s, %(only)s, %(limit)s, %(most)s)"
# Record that a user is to be erased.
REQUEST_ERASURE = text("SELECT * FROM request_user_erasure(CAST(:erasure AS uuid), :user, :key)")
# Destroy everything of a user.
ERASE_USER = text("SELECT * FROM erase_user(CAST(:erasure AS uuid), :user, CAST(:job AS uuid))")
STORE_RECEIPT = text("SELECT store_user_receipt(CAST(:erasure AS uuid), :signed, :signature, :public_key)")
NO_TIMEOUT = text("SET LOCAL statement_timeout = 0")
# The receipt of the last erasure of a user.
RECEIPT = """
    SELECT e.signed, e.signature, e.public_key FROM user_erasures e
    WHERE e.tenant_id = %(tenant)s AND e.project_id = %(project)s
      AND e.user_hash = user_hash(%(tenant)s, %(project)s, %(user)s) AND e.signed IS NOT NULL
    ORDER BY e.created_at DESC LIMIT 1"""
# Threads, the last one written to first: each is read by its own index entries.
THREADS = """
    SELECT t.thread_id, t.user_id, count(*) AS notes, min(t.occurred_at) AS first_at, max(t.occurred_at) AS last_at
    FROM memory_notes t
    WHERE t.tenant_id = %(tenant)s AND t.project_id = %(project)s AND t.thread_id IS NOT NULL AND t.deleted_at IS NULL
    GROUP BY t.thread_id, t.user_id
    HAVING %(after)s::text IS NULL OR (t.thread_id, t.user_id) > (%(after)s::text, %(after_user)s::text)
    ORDER BY t.thread_id, t.user_id LIMIT %(limit)s"""
# The ids of a thread's notes in order; notes without a position stand in the order they were said in.
TURNS = """
    SELECT n.note_id, coalesce(n.position, 2147483647) AS place, n.occurred_at
    FROM memory_notes n
    WHERE n.tenant_id = %(tenant)s AND n.project_id = %(project)s AND n.thread_id = %(thread)s AND n.deleted_at IS NULL
      AND n.user_id = %(user)s
      AND (%(after)s::uuid IS NULL OR (coalesce(n.position, 2147483647), n.occurred_at, n.note_id)
           > (%(after_place)s::int, %(after_at)s::timestamptz, %(after)s::uuid))
    ORDER BY 2, n.occurred_at, n.note_id LIMIT %(limit)s"""
# The ids of the last notes of a thread, the last one first.
LAST_TURNS = """
    SELECT n.note_id FROM memory_notes n
    WHERE n.tenant_id = %(tenant)s AND n.project_id = %(project)s AND n.thread_id = %(thread)s AND n.deleted_at IS NULL
      AND n.user_id = %(user)s
    ORDER BY coalesce(n.position, 2147483647) DESC, n.occurred_at DESC, n.note_id DESC LIMIT %(limit)s"""
