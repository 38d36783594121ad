"""Learning: the algorithm, the models it trains, and the simulator that runs it."""
