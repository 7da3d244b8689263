"""Keep remote topics, their configuration and their ACLs like the source's.

Belongs here: creation, expansion, synchronisation of configs and ACLs.
Does not: records.
"""
