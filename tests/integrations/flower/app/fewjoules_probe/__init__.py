"""A Flower app for tests: its results are known, and its nodes can be told to pause or to misbehave."""
