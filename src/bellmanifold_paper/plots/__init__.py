"""How the paper's figures are drawn: arrays in, matplotlib Axes out."""
