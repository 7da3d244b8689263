"""Values of monitoring: metrics, states of loops and flows, statistics."""
