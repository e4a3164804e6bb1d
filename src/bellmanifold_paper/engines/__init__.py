"""Engines that only the paper needs: Proposition 1, rejection, gradient-based chains."""
