"""Commands of `deltamirror`: one module for each command or group of commands.

Belongs here: options, tables for people, JSON for scripts, exit codes.
Does not belong here: the work. A command calls a function of another package and prints the result.
"""
