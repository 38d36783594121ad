"""The paper's evaluation, figure by figure: what follows from its model, and which of its sentences hold."""
