"""Tables, figures and pages about plans and runs."""
