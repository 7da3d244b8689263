"""Nouns of replay: progress, work of a slot, point-in-time replays."""
