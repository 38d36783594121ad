"""FT-LSGD-DB as functions of state; every execution runs these, or is held to them."""
