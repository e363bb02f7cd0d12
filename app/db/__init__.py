"""The database: connections and scoped transactions, the embedded server, roles, row-level security and its check."""
