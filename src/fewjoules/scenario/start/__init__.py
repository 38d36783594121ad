"""A first scenario file from a few answers, for ``fewjoules init``."""
