"""Nouns of monitoring: metrics, states of flows, statistics."""
