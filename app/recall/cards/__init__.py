"""Memory cards: what is known of an entity in one scope and garden, written up for reading and kept in step."""
