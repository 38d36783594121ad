"""The runs view: run folders, their curves and ledgers."""
