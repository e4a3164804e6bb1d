"""`python -m bellmanifold` is the command line."""

from bellmanifold.cli import main

if __name__ == "__main__":
    main()
