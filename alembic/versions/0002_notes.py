"""Notes: what was said, and the history of every change."""

from alembic import op
from app.db.migrations import execute_literal
from app.db.rls import Rule, enable_tenant_rls

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE memory_notes (
    tenant_id TEXT NOT NULL,
    note_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    owner_key TEXT NOT NULL,
    type TEXT NOT NULL,
    content TEXT NOT NULL,
    content_hash TEXT NOT NULL,
    tags TEXT[] NOT NULL,
    author TEXT,
    occurred_at TIMESTAMP WITH TIME ZONE NOT NULL,
    thread_id TEXT,
    position INTEGER,
    pinned BOOLEAN NOT NULL,
    extraction_status TEXT DEFAULT 'none' NOT NULL,
    version INTEGER DEFAULT 1 NOT NULL,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT memory_notes_pkey PRIMARY KEY (tenant_id, note_id),
    CONSTRAINT memory_notes_scope_check CHECK (scope IN ('agent_private', 'project_shared', 'org_shared', 'public')),
    CONSTRAINT memory_notes_type_check
        CHECK (type IN ('fact', 'preference', 'decision', 'procedural', 'semantic',
            'constraint', 'profile', 'plan', 'document_chunk')),
    CONSTRAINT memory_notes_extraction_status_check
        CHECK (extraction_status IN ('none', 'pending', 'completed', 'failed')),
    CONSTRAINT memory_notes_position_check CHECK (position IS NULL OR thread_id IS NOT NULL)
);
COMMENT ON COLUMN memory_notes.owner_key IS 'the agent under agent_private, else the garden, else nothing';
CREATE INDEX memory_notes_hash_idx ON memory_notes (tenant_id, project_id, content_hash) WHERE deleted_at IS NULL;
CREATE INDEX memory_notes_list_idx ON memory_notes (tenant_id, project_id, created_at, note_id);
CREATE UNIQUE INDEX memory_notes_live_key
    ON memory_notes (tenant_id, project_id, scope, owner_key, thread_id, position, content_hash)
    NULLS NOT DISTINCT
    WHERE deleted_at IS NULL AND suppression = 0;
CREATE INDEX memory_notes_thread_idx
    ON memory_notes (tenant_id, project_id, thread_id, position)
    WHERE thread_id IS NOT NULL;
CREATE TABLE memory_history (
    tenant_id TEXT NOT NULL,
    history_id UUID NOT NULL,
    project_id TEXT NOT NULL,
    note_id UUID NOT NULL,
    agent_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    garden_id UUID,
    suppression SMALLINT DEFAULT 0 NOT NULL,
    event TEXT NOT NULL,
    version INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    reason TEXT,
    old_content TEXT,
    new_content TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT memory_history_pkey PRIMARY KEY (tenant_id, history_id),
    CONSTRAINT memory_history_tenant_id_note_id_fkey FOREIGN KEY(tenant_id, note_id)
        REFERENCES memory_notes (tenant_id, note_id) ON DELETE CASCADE,
    CONSTRAINT memory_history_event_check
        CHECK (event IN ('created', 'updated', 'deleted', 'recovered', 'merged', 'none', 'split'))
);
COMMENT ON COLUMN memory_history.agent_id IS 'the note''s agent, so that its policy holds here too';
CREATE INDEX memory_history_note_idx ON memory_history (tenant_id, note_id, history_id);
"""


def upgrade() -> None:
    execute_literal(TABLES)
    # Nobody who serves requests removes a note for good: forgetting is a mark, erasure a job of its own.
    enable_tenant_rls(op.execute, "memory_notes", rule=Rule.MEMORY, grants="SELECT, INSERT, UPDATE")
    enable_tenant_rls(op.execute, "memory_history", rule=Rule.MEMORY, grants="SELECT, INSERT")


def downgrade() -> None:
    op.execute("DROP TABLE memory_history, memory_notes")
