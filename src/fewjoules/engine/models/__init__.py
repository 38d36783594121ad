"""Networks to train, and where their parameters lie in one flat vector."""
