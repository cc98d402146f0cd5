"""Runs seeds for as long as one likes: `script/sim --seeds 10000`, or one again: `script/sim --seed 17`.

`script/sim --plant NAME` plants a mistake of tests/sim/planted.py and searches for the first seed that finds it, with
the message that is recorded for it; `--plant all` does so for each mistake that has a recorded seed.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import traceback
from collections import Counter
from collections.abc import Iterable

from tests.sim.planted import FAULTS
from tests.sim.planting import Planted, planted
from tests.sim.scenario import run


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--plant", choices=[*sorted(FAULTS), "all"], help="a mistake to be found, instead of none")
    arguments = parser.parse_args()
    logging.disable()  # the nodes log the injected faults, which is not of interest here
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    if arguments.seed is not None:
        seeds = range(arguments.seed, arguments.seed + 1)
    if arguments.plant == "all":
        return max(_look_for(fault, seeds) for fault in FAULTS.values() if fault.seed is not None)
    if arguments.plant is not None:
        return _look_for(FAULTS[arguments.plant], seeds)
    marks: Counter[str] = Counter()
    failed: list[int] = []
    for seed in seeds:
        try:
            marks.update(run(seed))
        except Exception:
            failed.append(seed)
            traceback.print_exc()
            print(f"seed {seed} failed", file=sys.stderr)
    for mark, count in sorted(marks.items()):
        print(f"{count:10,} {mark}")
    print(f"{len(seeds)} seeds, {len(failed)} failed" + (f": {failed}" if failed else ""))
    return 1 if failed else 0


def _look_for(fault: Planted, seeds: Iterable[int]) -> int:
    for seed in seeds:
        try:
            with planted(fault):
                run(seed)
        except Exception as failure:
            if isinstance(failure, AssertionError) and re.search(fault.complaint, str(failure)):
                print(f"{fault.name}: found by seed {seed}: {failure}", flush=True)
                return 0
    print(f"{fault.name}: not found", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
