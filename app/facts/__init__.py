"""Facts: what is believed, of which entities, by which predicates, with its evidence, true from and to."""
