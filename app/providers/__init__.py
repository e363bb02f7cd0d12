"""Clients for embedding, completion and reranking: each a small Protocol with real and fake implementations.

It owns how a model is named, reached and guarded against; what to embed, and when, is the business of the rooms.
"""
