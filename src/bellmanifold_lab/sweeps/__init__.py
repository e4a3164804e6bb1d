"""Many runs: plans, the processes that play them, and the store of their results."""
