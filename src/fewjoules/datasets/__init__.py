"""Images, labels and text to learn from, and partitions among clients (NumPy only). docs/data.md is the overview."""
