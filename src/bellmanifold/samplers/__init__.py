"""Samplers that know no decision problem: they take a log density and walk."""
