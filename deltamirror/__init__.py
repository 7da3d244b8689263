"""The application: what runs, and what an operator can ask for.

Belongs here: the order of steps, threads, waits, retries and commands, in one package a subject.
Does not: rules that need no client (`pipeline/`), connections (`resources/`), Dagster (`assets/`).
"""
