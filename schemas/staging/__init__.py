"""Nouns of staging: frontiers, read ranges, segments, gaps."""
