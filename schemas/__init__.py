"""Value types, table descriptions, configuration keys and errors.

Belongs here: frozen values with their invariants, the configuration that a user may
write, the description of each Delta table, and every error with its hint.
Does not: functions on these values (`pipeline`), opening files or connections
(`resources`), deciding when a step runs (`deltamirror`, `assets`).

Imports the standard library and pydantic, and no other package of this project.
"""
