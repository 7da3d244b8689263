"""Dagster's definitions: assets, checks, jobs, sensors and the listener that reports to Dagster.

Belongs here: everything that imports Dagster, except `resources.dagster_resources`.
Does not: decisions. An asset function calls one function of `deltamirror/` and returns its result.
"""
