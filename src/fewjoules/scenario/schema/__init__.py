"""The form of a scenario file: its tables, and what is said of a file that does not fit them."""
