"""Many runs: plans of them, who plays them, and where their results live."""
