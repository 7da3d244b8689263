"""What things are: records, partitions, ranges, runs, flows, tables, settings and errors.

Put here: frozen values with the rules they always keep, the configuration a user may
write, each Delta table's description, and every error with the next thing to do.
Put elsewhere: anything that is done to them (pipeline), anything that opens a file or a
connection (resources), anything that says when (assets).

Imports the standard library and pydantic, and nothing of ours.
"""
