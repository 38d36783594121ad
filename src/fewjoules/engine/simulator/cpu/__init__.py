"""Backend that trains clients on the processor."""
