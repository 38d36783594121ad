"""Images and labels to learn from, and how they are dealt to clients (NumPy only). docs/data.md is the overview."""
