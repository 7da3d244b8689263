"""Delta tables and data files of the lake.

Belongs here: everything that uses deltalake, Parquet and the transaction log.
Does not: the choice of the rows that a tick writes.
"""
