"""Read MirrorMaker 2's file: properties, providers, keys, replication policies, client settings.

Belongs here: everything between the file's text and a `Config`.
Does not: the declarations of keys (`schemas/config`).
"""
