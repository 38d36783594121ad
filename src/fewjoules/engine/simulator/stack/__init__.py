"""A model for a stack of clients."""
