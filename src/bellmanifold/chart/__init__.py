"""The chart between coordinates and action values: for batches, and on sparse systems for one point at a time."""
