"""What the paper says, as measurable sentences, grouped by subject; `bellmanifold.reproduction.ledger` judges them."""
