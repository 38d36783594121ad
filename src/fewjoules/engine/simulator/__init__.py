"""All clients of a federation on one machine."""
