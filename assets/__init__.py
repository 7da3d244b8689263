"""Dagster assets, asset checks, jobs, sensors and schedules.

Belongs here: everything that uses Dagster, except its resources (`resources/dagster_resources.py`).
Does not: other logic. An asset function reads its inputs, calls one function of `deltamirror`, and
returns the result.
"""
