"""All SQL of the audit log."""

from sqlalchemy import text

# Append one line to the audit log, in the transaction of the action.
RECORD_EVENT = text("SELECT record_event(:type, :key, CAST(:details AS jsonb))")

# Number and chain lines of the audit log.
SEAL_AUDIT = text("SELECT * FROM seal_audit(:limit)")
