"""Traversal of the graph of objects: traverse in pages, and expand with filters, phases, paths and time."""
