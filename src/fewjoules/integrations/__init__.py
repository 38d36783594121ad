"""FewJoules inside other frameworks."""
