"""The lake's Delta tables and data files.

Belongs here: everything that uses deltalake, Parquet and the transaction log.
Does not: which rows a tick writes.
"""
