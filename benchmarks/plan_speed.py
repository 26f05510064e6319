"""How long a plan of a million raw candidates takes, and its peak memory.

    python benchmarks/plan_speed.py [thousands of candidates, default 1000]

Prints one JSON document: seconds to expand, reject and write (Parquet), of that the writing, and the peak resident
memory of the process. The dry shape of the grid is that of a real search: all axes, one model, node counts 1 to 64.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from sweep.contract import FREE, Workload
from sweep.inputs.load import parse_grid
from sweep.planning.build import build
from sweep.planning.table import PARQUET

GRID = """
models: [1B, 8B]
nodes: [1, 2, 4, 8, 16, 32, 64]
sequence_length: 4096
global_batch: 1Mi
tp: auto
pp: {from: 1, to: 32}
cp: [1, 2]
zero: auto
micro_batch_size: {from: 1, to: 16}
recompute: auto
compile: auto
site: {gpu: h100, gpus_per_node: 8}
"""
WORKLOAD = Workload(
    name="nanotron",
    main="nowhere:main",
    axes=frozenset({*FREE, "dtype", "compile"}),
    choices={"recompute": ("none", "selective", "full")},
)


def main(thousands: int) -> None:
    import pyarrow.parquet as pq

    grid = parse_grid(GRID, "benchmark", _sized(thousands))
    assert grid.site is not None
    begin = time.perf_counter()
    table = build(grid, grid.site, WORKLOAD).table
    built = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.parquet"
        pq.write_table(table, path, **PARQUET)
        size = path.stat().st_size
    end = time.perf_counter()
    runs = table.num_rows - table.column("run_id").null_count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"candidates": table.num_rows, "runs": runs, "total_s": round(end - begin, 3)}
    found |= {"write_s": round(end - built, 3), "peak_rss_mib": peak >> 20, "file_mib": round(size / 2**20, 1)}
    print(json.dumps(found))


def _sized(thousands: int) -> list[str]:
    """The full grid has 1,376,256 candidates; smaller grids have fewer node counts and stages."""
    if thousands >= 1000:
        return []
    return (
        ["nodes=[4]", "models=[1B]", "pp={from: 1, to: 8, times: 2}", "cp=1"] if thousands <= 10 else ["nodes=[1, 2]"]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
