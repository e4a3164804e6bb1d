"""The larger commands, one module each, and what commands share."""
