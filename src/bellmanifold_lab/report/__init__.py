"""Reports of runs as one self-contained HTML file: what was run, how it went, and an episode player."""
