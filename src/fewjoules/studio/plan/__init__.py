"""The plan view: a fleet to edit, and at once its plan."""
