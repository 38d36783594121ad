"""FewJoules on Flower: a mod and a client for nodes, a strategy for the server. docs/deploy.md shows their use."""
