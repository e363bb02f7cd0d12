"""Running it: finding or starting the database, migrating, the first tenant, the processes, and the doctor."""
