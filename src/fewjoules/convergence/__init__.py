"""How many rounds training needs: the bound of [LI21], and rounds models fitted to measurements."""
