"""Agents that only the paper needs."""
