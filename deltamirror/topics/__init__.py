"""Create remote topics, and sync their partition counts, configs and ACLs from the source.

Belongs here: creation, expansion, synchronisation of configs and ACLs.
Does not belong here: records.
"""
