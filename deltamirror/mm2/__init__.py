"""Change over from and back to MirrorMaker 2: `import-mm2`, `export-mm2`.

Belongs here: both commands.
Does not: MirrorMaker 2's record formats (`schemas/mm2`) and topics (`resources/kafka`).
"""
