"""Decisions from a posterior: the best policy, the expected loss of stopping now, and what to try next."""
