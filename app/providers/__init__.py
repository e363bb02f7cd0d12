"""Clients for embedding, completion and reranking models, each a small Protocol with real and fake implementations."""
