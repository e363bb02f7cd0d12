"""Bridges between entities and objects: which object stands for an entity, and objects made of what there is."""
