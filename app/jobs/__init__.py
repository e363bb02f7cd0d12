"""The queue: enqueue in the writer's transaction, lease fairly between tenants, end every job exactly once."""
