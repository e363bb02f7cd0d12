"""Sources: who says things, and how far each source is trusted."""
