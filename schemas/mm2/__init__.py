"""MirrorMaker 2's record formats, replication policies and name filters; differences from it."""
