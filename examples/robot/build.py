"""The delivery robot's floor as a problem file.

Run it to write `robot.json` again: `python examples/robot/build.py`. The same as
`bellmanifold env export env:robot --out examples/robot/robot.json`.
"""

from pathlib import Path

from bellmanifold import write_problem
from bellmanifold.envs import robot

if __name__ == "__main__":
    write_problem(robot(), Path(__file__).with_name("robot.json"))
