"""The values of a configuration, and the tables that declare every key."""
