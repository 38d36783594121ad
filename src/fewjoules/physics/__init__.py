"""What the world costs: channel, radio, GPU, and the fleet of cost vectors they reduce to."""
