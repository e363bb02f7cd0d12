"""The HTTP edge: authentication, guards, error envelope, cursors, idempotency, rate limits, health."""
