"""`python -m bellmanifold` is the command line."""

from bellmanifold.cli import main

main()
