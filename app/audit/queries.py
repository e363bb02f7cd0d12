"""All SQL of the audit log."""

from sqlalchemy import text

# Write one line of the audit log, in the transaction of the act.
RECORD_EVENT = text("SELECT record_event(:type, :key, CAST(:details AS jsonb))")

# Numbers and chains lines of the audit log.
SEAL_AUDIT = text("SELECT * FROM seal_audit(:limit)")
