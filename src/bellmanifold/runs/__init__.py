"""One run, and several of the same kind: what is played, measured and summed up."""
