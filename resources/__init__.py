"""Connections: Kafka clusters, the lake, Spark, configuration files, Java.

Belongs here: everything that can be unreachable, slow or full, one package a technology.
Classes here implement the Protocols that `pipeline` declares.
Does not: rules about offsets, order or names (`pipeline/`), the order of steps (`deltamirror/`).

It imports `schemas` only. Dagster appears in `dagster_resources` alone, because what a Spark task
imports must not import Dagster.
"""
