"""Learning. Only this layer, ``measure`` and ``integrations`` import PyTorch."""
