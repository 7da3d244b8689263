"""The offset map: encode runs, validate them, look offsets up, translate.

Belongs here: functions of offsets.
Does not: the table of the map (`deltamirror/replay/offset_map`).
"""
