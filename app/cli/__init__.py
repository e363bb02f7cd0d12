"""The `palimpsest` command: its commands, and the processes it starts."""
