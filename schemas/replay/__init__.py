"""Values of replay: progress, a slot's work and results, point-in-time replays."""
