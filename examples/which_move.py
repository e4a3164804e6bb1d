"""From three observations on the deep sea to probabilities and a picture."""

import bellmanifold as bm

model = bm.envs.deep_sea(depth=3)
data = bm.Dataset.from_pairs(model, [("0,0", "right"), ("1,1", "left"), ("2,0", "right")])

summary = bm.posterior(model, data, epsilon=0.01, prior_scale=10.0)
for action, found in summary.to_dict()["actions"]["0,0"].items():
    print(f"{action:5} is optimal at the start with probability {found['probability']:.3f} (se {found['se']:.0e})")

for route in summary.routes[:3]:
    moves = " ".join(model.pair_name(pair)[1] for pair in route.pairs)
    print(f"{moves:17} {route.probability:.3f} (se {route.se:.0e})")

bm.figures.draw(model, summary).figure.savefig("deep-sea.png", dpi=100)
