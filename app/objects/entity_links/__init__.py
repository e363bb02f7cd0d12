"""Links between entities and objects: the object that represents an entity, and objects created from entities."""
