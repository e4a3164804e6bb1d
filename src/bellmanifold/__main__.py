"""`python -m bellmanifold` is the command line."""

from bellmanifold.cli.main import main

if __name__ == "__main__":
    main()
