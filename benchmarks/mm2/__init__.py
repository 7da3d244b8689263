"""Comparison of deltamirror and MirrorMaker 2, in turn on the same machine, brokers and data."""
