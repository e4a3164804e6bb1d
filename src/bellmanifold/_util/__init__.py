"""Helpers without any decision problem: options, display, progress, interrupts, limits."""
