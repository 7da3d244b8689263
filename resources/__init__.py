"""Where records live: Kafka clusters, the lake, Spark, files, downloads.

Put here: whatever can be down, slow or full, each place in one file, fitting by shape the
Protocols that pipeline declares.
Put elsewhere: any rule about offsets, order or names (pipeline, schemas), anything that
says when (assets).

Imports schemas only. Dagster appears in `configured.py` alone, because what a Spark task
imports must not import Dagster.
"""
