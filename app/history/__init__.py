"""History: what was taken back, and what came from what."""
