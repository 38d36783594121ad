"""Slow, obvious twins of FedJoule's algorithms, to be compared with them."""
