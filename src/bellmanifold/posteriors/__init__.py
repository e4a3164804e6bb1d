"""What the data say about Q*: posteriors over the optimal action values."""
