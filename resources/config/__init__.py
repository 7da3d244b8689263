"""Read mm2.properties: providers, keys, replication policies, client settings.

This package holds everything between the file's text and a `Config`.
It does not hold the declarations of keys (`schemas/config`).
"""
