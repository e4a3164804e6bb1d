"""Which move should the robot try next, and what is trying worth?

At tolerance 0 no draw of the action values makes the start worth less than the best way that is known already. The mean
of what it is worth more is the loss to expect from never trying anything new, and it splits over the untried moves that
each draw would try first.
"""

import numpy as np

import bellmanifold as bm

model = bm.load_model("examples/robot/robot.json")
data = bm.load_data("examples/robot/trips.json", model)
draws = bm.posterior(model, data, prior_scale=5.0).draws  # action values by draw and pair, with weights
q, weight = draws.q.values, draws.weight.values
start = model.initial  # the probability of starting in each state


def value_of_known_moves():
    """Values of the best policy that plays observed pairs only; minus infinity where there is none."""
    value = np.full(model.n_states, -np.inf)
    for _ in range(1000):
        with np.errstate(invalid="ignore"):
            value = model.best(np.where(data.observed, model.backup(value), -np.inf))
    return value


def first_untried(policy):
    """The chance that each untried pair is the first one played, from the start under a policy."""
    chance, here = np.zeros(model.n_pairs), start.copy()
    for _ in range(1000):
        played = np.zeros(model.n_pairs)
        played[policy] = here
        chance += np.where(data.observed, 0.0, played)
        onward = (np.where(data.observed, played, 0.0))[model.next_pair] * model.next_prob
        here = np.bincount(model.next_state, onward, model.n_states + 1)[:-1]
    return chance


known = float(start[start > 0] @ value_of_known_moves()[start > 0])
best = np.maximum.reduceat(q, model.pair_start[:-1], axis=1)  # each state's best value, draw by draw
gain = best @ start - known
greedy, which = np.unique(q == best[:, model.pair_state], axis=0, return_inverse=True)
chance = np.array([first_untried(np.flatnonzero(pairs)) for pairs in greedy])[which.ravel()]
loss = weight @ gain
error = np.sqrt(weight**2 @ (gain - loss) ** 2)

print(f"the best known way is worth {known:.2f}")
print(f"never trying anything else loses {loss:.2f} on average (standard error {error:.2f})")
print(f"something untried is better with probability {weight @ (gain > 1e-6):.2f}")
for pair in np.flatnonzero(weight @ chance > 0.001):
    state, action = model.pair_name(pair)
    first, share = weight @ chance[:, pair], weight @ (gain * chance[:, pair])
    print(f"{action} at {state}: the first to try with probability {first:.2f}, {share:.2f} of the loss")
