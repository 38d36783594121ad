"""Costs of devices: channel, radio, GPU, and the fleet of cost vectors that results from them."""
