"""The tree again, as sentences that hold, with stories on real brokers beside it."""
