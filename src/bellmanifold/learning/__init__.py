"""Single runs, and several runs of one agent: playing, measuring and summarising them."""
