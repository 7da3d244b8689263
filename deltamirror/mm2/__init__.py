"""Migrate a flow from MirrorMaker 2 and back: `import-mm2`, `export-mm2`.

Belongs here: both commands.
Does not belong here: MirrorMaker 2's record formats (`schemas/mm2`) and topics
(`resources/kafka`).
"""
