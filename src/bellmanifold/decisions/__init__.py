"""What to do with a posterior: the best policy, what stopping now costs, and what to try next."""
