"""What is known: the problem, its builder, observations of it, names and maps."""
