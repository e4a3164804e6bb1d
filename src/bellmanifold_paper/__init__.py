"""The paper, made again: its runs, its figures and a ledger of its claims."""
