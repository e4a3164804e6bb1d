"""Write docs/ledger.md from a ledger that `bellmanifold reproduce --out DIR` has measured.

python examples/ledger_page.py DIR/claims.json docs/ledger.md
"""

import sys
from pathlib import Path

from bellmanifold_paper.ledger_file import read_ledger
from bellmanifold_paper.tables import page

HEAD = """# The ledger

What the paper *Bayesian learning for the stochastic shortest path problem* says in its numerical sections, and in
those of its theory that can be computed, as measurable sentences in our words, each with what was measured and a
verdict. `bellmanifold reproduce --out DIR` measures all of it again and writes it to `DIR/claims.json`; [Files and
commands](interface.md) has the format.

**Verdicts are computed.** A criterion compares numbers with bounds. A condition is *established* if the number's
whole 95% interval lies within them, *likely* if only the number does, *unlikely* if only part of the interval does,
*refuted* if none of it. A claim holds if all its conditions are established. It holds with a remark if no number
speaks against it but the runs are too few to establish it, or if a condition that only qualifies it fails. It does
not hold if a number speaks against it; the remark says whether that is beyond doubt. Each interval misses in one of
twenty cases and claims are judged one by one, so a few may be judged wrongly by chance. Criteria about runs were
written before the runs were looked at; where one was changed afterwards, it says so. Some of those about posteriors
(the sections on the swirl with complete data and on small tolerances) were written after trials of the programs they
use.

Intervals are Student's of means over runs, Welch's of differences, Clopper and Pearson's of shares of runs, and
Student's with 15 degrees of freedom where an engine reports a standard error (from 16 replicates or more). They are cut
at 0 and 1 for probabilities and at 0 for other quantities that cannot be negative. Distances, sums or maxima of
absolute differences, are biased upwards near 0; their intervals are conservative, by the triangle inequality (maxima:
Bonferroni's). What has no interval was computed exactly, or all runs agree (sd 0). An sd is that of a sample (divided
by runs - 1). *Late episodes* are the last 20 of 100. BR, HMC, TD, TD-En and TD-Max are the paper's methods, *exact* is
the agent `manifold`; `at 0.1` names a tolerance; the prior sd is 10 unless stated. "the published code" is
the authors' repository, https://github.com/hcw1026/ABRLExact, as the paper cites it; which of its commits was measured
was not recorded.

"""


def main(source: str, target: str) -> None:
    """Write the page."""
    Path(target).write_text(HEAD + page(read_ledger(source)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
