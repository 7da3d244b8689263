"""Values of staging: frontiers, read ranges, segments, causes of gaps."""
