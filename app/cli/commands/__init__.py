"""The commands of `palimpsest`, by subject; each is a thin layer over use cases."""
