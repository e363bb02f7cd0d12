"""Recall: the graph of facts between entities, laid out for walking."""
