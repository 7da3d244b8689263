"""The command line: one module for each command of `deltamirror`.

Belongs here: options, tables for people, JSON for scripts, exit codes.
Does not: work. A command calls one function of another package and shows what it returns.
"""
