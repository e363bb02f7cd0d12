"""Walking the graph of objects: traverse, page by page, and expand, with filters, phases, paths and time."""
