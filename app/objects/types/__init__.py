"""Types: which properties objects and relationships may have, and which objects a relationship may link."""
