"""Objects: what is curated. Typed by JSON Schema, versioned, linked by typed relationships."""
