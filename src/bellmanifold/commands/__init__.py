"""Commands that have a module of their own, and what commands share."""
