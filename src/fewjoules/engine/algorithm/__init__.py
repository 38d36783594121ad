"""FT-LSGD-DB as pure functions of state. Every backend calls them or is tested to give the same results."""
