"""A configuration's nouns, and the declaration of every key."""
