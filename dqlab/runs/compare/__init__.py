"""New code beside the old: a sample compared, and what follows from it."""
