"""The laboratory's commands, which the command line finds by their entry points."""
