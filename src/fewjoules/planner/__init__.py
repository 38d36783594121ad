"""Plan local steps and sparsity for least energy: the control problem, two solvers, and every scheme."""
