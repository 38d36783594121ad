"""A Flower app that trains by a FewJoules plan."""
