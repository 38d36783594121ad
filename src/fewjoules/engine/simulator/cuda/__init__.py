"""Backend that trains clients on a GPU."""
