"""Notes: what was said, stored first, with the history of every change."""
