"""Learning: an agent plays episodes in an environment; runs are measured, kept in files and summarised."""
