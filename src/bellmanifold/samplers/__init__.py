"""General-purpose samplers: they take a log density and know nothing of decision problems."""
