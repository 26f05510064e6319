"""The node-hours that `sweep plan` announces against further replays: python -m benchmarks.plan_cost [--draws 20]

Three grids: 70B on 64 nodes with nanotron, SmolLM3 on 384 GPUs, Qwen3-30B-A3B with Megatron on 16 nodes. The default
strategy is replayed on other results that are drawn from the models of time and memory with their uncertainty.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sweep.inputs.grid import max_run_s
from sweep.inputs.load import load_inputs, load_site
from sweep.library.plan import expected_saving, plan, plan_summary
from sweep.search.budget import Budget
from sweep.search.candidates import from_plan
from sweep.search.saving import replays
from sweep.search.strategies import strategy_named

EXAMPLES = Path(__file__).parents[1] / "examples"
GRIDS = {
    "70B, 64 nodes": ("ultrascale.yaml", ("models=[70B]", "nodes=[64]", "workload=nanotron")),
    "SmolLM3, 384 GPUs": ("smollm3-384.yaml", ()),
    "Qwen3-30B-A3B, 16 nodes": ("qwen3-30b-a3b.yaml", ("nodes=[16]",)),
}
SEED = 1
"""the plan's own draws are of seed 0"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args(argv)
    print("| grid | runs | node-hours of all in full | announced | replayed: median (5 %, 95 %) | factor |")
    print("|---" * 6 + "|")
    for title, (name, overrides) in GRIDS.items():
        grid, stated = load_inputs(EXAMPLES / name, overrides, None)
        site = stated or load_site()
        planned = plan(grid, site)
        whole = plan_summary(planned, site)["predicted_node_hours"]
        announced = expected_saving(planned, grid, site).get(grid.strategy)
        runs = from_plan(planned.runs, site.hardware)
        budget = Budget.of(grid.budget.model_dump(exclude_none=True), len(runs))
        stops = None if grid.stops_slow == "off" else grid.warmup_iterations + grid.iterations
        found = replays(runs, strategy_named(grid.strategy), budget, given.draws, SEED, stops, max_run_s(grid))
        hours = np.array([one.node_hours for one in found])
        low, median, high = np.percentile(hours, [5, 50, 95])
        stated = f"{announced.node_hours:,.1f}" if announced else "-"
        factor = f"{max(announced.node_hours / median, median / announced.node_hours):.2f}" if announced else "-"
        print(
            f"| {title} | {len(runs)} | {whole:,.1f} | {stated} | {median:,.1f} ({low:,.1f}, {high:,.1f}) | {factor} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
