"""What the paper says, as measurable sentences, grouped by subject; `bellmanifold_paper.ledger` judges them."""
