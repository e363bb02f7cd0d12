"""The registries of types: which properties an object or a relationship may have, and what it may link."""
