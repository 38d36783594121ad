"""The same training by FewJoules on Flower."""
