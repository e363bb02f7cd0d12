"""History: what was taken back, what came from what, what was forgotten for good, and who did what."""
