"""Slow, obvious twins of FewJoules's algorithms, to be compared with them."""
