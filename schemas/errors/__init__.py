"""Errors that a user can see, each with a message and a hint.

Every error derives from `DeltamirrorError`. `ConfigError` ends a command with exit code 2, any
other error with 1. A `PartitionError` belongs to one partition and does not stop the others.
"""
