"""Benchmarks: speed and cost. Every number in the README is measured here, in one run.

Belongs here: one script for each measure, the brokers and meters they share, and the report.
Does not belong here: code that the product needs to run.
"""
