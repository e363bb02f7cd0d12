"""Ranking as pure functions: no SQL, no HTTP."""
