"""The Spark session, its resident workers and its jars.

Belongs here: everything that uses PySpark.
Does not: what a worker does (`deltamirror/worker_tasks`).
"""
