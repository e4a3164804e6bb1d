"""Makes the city of the guide: `roads.csv`, 60 roads between 25 junctions, and `trips.csv`, 200 drives along them.

Junctions lie on a perturbed grid of five rows and five columns; the depot is in the corner opposite to J1. Streets join
neighbours, and some cross a block; about two thirds are two-way. A bridge and a tunnel lead from J12 to J13. What a
road takes is drawn once from N(5, 2^2) minutes, at least 1, the same both ways, and left out of the table: nobody knows
it. Vans drive to the depot, every third one from J1, the others from a random junction, each along the way that is
shortest by her driver's own idea of the minutes, and note what each road took, with an error of 1.5 minutes, until 200
roads are noted.

`python examples/city/make_city.py` writes both tables again, beside this file.
"""

import csv
from pathlib import Path

import numpy as np

import bellmanifold as bm

SEED = 2027
SIZE, ACROSS, ONE_WAY = 5, 19, 20
SHIFT = (-0.17, 0.17)
MEAN, SPREAD, LEAST, ERROR = 5.0, 2.0, 1.0, 1.5
WRONG_IDEA, FROM_J1 = 0.35, 1 / 3
TRIPS = 200
HERE = Path(__file__).parent


def city(rng):
    """Positions of the junctions, and the roads: from, to, name, whether it is one-way."""
    cells = [(row, column) for row in range(SIZE) for column in range(SIZE)]
    name = dict(zip(cells, [*(f"J{k}" for k in range(1, SIZE * SIZE)), "depot"], strict=True))
    places = {
        name[row, column]: [round(x + rng.uniform(*SHIFT), 2) + 0.0 for x in (column, -row)] for row, column in cells
    }

    def joined(*steps):
        ends = [(cell, (cell[0] + down, cell[1] + right)) for cell in cells for down, right in steps]
        return [(name[here], name[there]) for here, there in ends if there in name]

    across = joined((1, 1), (1, -1))
    chosen = sorted(rng.choice(len(across), ACROSS, replace=False).tolist())
    streets = [street for street in joined((0, 1), (1, 0)) if street != ("J12", "J13")] + [across[k] for k in chosen]
    one_way = rng.permutation(len(streets)) < ONE_WAY
    turned = rng.random(len(streets)) < 0.5
    roads = [
        (*(reversed(street) if turn else street), "", one)
        for street, turn, one in zip(streets, turned, one_way, strict=True)
    ]
    return places, [*roads, ("J12", "J13", "bridge", False), ("J12", "J13", "tunnel", True)]


def drives(rng, roads, minutes):
    """What vans noted: from, to, name, minutes."""
    noted = []
    while len(noted) < TRIPS:
        idea = minutes * np.exp(WRONG_IDEA * rng.standard_normal(len(roads)))
        table = [
            {"from": a, "to": b, "name": name, "oneway": one, "minutes": cost}
            for (a, b, name, one), cost in zip(roads, idea, strict=True)
        ]
        model = bm.from_edges(table, goal="depot", start="all")
        best, here = bm.solve(model).optimal, int(rng.integers(model.n_states))
        here = model.state_index["J1"] if rng.random() < FROM_J1 else here
        lines = model.metadata["roads"]["lines"]
        while here < model.n_states:
            pair = int(np.flatnonzero(best & (model.pair_state == here))[0])
            line, there = lines[pair], int(model.next_state[model.next_start[pair]])
            took = minutes[max(line, ~line)] + ERROR * rng.standard_normal()
            noted.append((model.states[here], model.state_name(there), roads[max(line, ~line)][2], max(took, 0.1)))
            here = there
    return noted[:TRIPS]


def main() -> None:
    """Write both tables."""
    rng = np.random.default_rng(SEED)
    places, roads = city(rng)
    minutes = np.maximum(LEAST, rng.normal(MEAN, SPREAD, len(roads)))
    with open(HERE / "roads.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["from", "to", "name", "minutes", "oneway", "from_x", "from_y", "to_x", "to_y"])
        for a, b, name, one in roads:
            table.writerow([a, b, name, "", "yes" if one else "no", *places[a], *places[b]])
    with open(HERE / "trips.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["from", "to", "name", "minutes"])
        for a, b, name, took in drives(rng, roads, minutes):
            table.writerow([a, b, name, f"{took:.1f}"])


if __name__ == "__main__":
    main()
