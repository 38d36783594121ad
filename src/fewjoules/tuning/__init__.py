"""Find a recipe and its rounds law by few short pilot runs."""
