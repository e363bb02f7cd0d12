"""Conflicts: pairs of facts that cannot both hold, and how they are resolved."""
