"""An agent and a command that plug into bellmanifold."""
