"""Rules of maintenance: which files to compact, which to delete, which segments to stage again.

Belongs here: functions of file lists and segments.
Does not: changing tables.
"""
