"""Documents: long texts, pages and files, read into notes one chunk at a time."""
