"""What to do about the costs: the control problem, two solvers, and every scheme."""
