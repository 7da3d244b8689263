"""The Spark session, its resident Python workers and its jars.

Belongs here: everything that uses PySpark.
Does not: the work of the workers (`deltamirror/worker_tasks`).
"""
