"""The `palimpsest` command: parsing, what each command does, and the processes it starts."""
