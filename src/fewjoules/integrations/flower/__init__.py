"""FewJoules on Flower."""
