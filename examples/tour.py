"""A tour of the built-in problems: does the theory apply, what is optimal, and what does that cost?"""

import time

import bellmanifold as bm

REFERENCES = [
    "env:two-state",
    "env:four-state",
    "env:deep-sea?depth=5",
    "env:deep-sea?depth=5&slip=0.1",
    "env:pyramid?depth=5",
    "env:swirl?depth=5",
    "env:grid?rows=20&columns=20&slip=0.1",
    "gym:CliffWalking-v1",
    "gym:Taxi-v4",
    "gym:FrozenLake-v1",
]


def main() -> None:
    """Check and solve every problem and print a table."""
    print(f"{'problem':38}{'states':>7}{'pairs':>7}  {'applies':9}{'improper':10}{'value':>10}{'seconds':>9}")
    remarks = []
    for reference in REFERENCES:
        begin = time.perf_counter()
        model = bm.load_model(reference)
        health = bm.check(model)
        value = f"{bm.solve(model).value_at_start:.4f}" if health.holds else "-"
        seconds = time.perf_counter() - begin
        improper = "exist" if health.verdict.components else "none"
        applies = "yes" if health.holds else "no"
        print(f"{reference:38}{model.n_states:7}{model.n_pairs:7}  {applies:9}{improper:10}{value:>10}{seconds:9.2f}")
        if not health.holds:
            remarks.append(f"{reference}: {health.messages[0]}")
    print()
    print("\n".join(remarks))


if __name__ == "__main__":
    main()
