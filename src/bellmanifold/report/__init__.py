"""Runs as one HTML file that needs nothing else: what was run, how it went, and a player of its episodes."""
