"""The tables of a scenario file, and error messages for files that do not fit them."""
