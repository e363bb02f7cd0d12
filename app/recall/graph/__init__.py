"""Walking the graph of facts: who is near an entity, over how many hops and which facts."""
