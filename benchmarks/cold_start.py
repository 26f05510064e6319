"""What a sweep's second pilot gains by the code that the first one compiled: two local pilots, a run each, on the CPU.

    python -m benchmarks.cold_start [--directory DIR]

Both runs have the same layout, so that the second has nothing to compile.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu_acceptance.sweeps import SWEEP, swept_in

GRID = """
name: cold-start
models:
  small: {num_layers: 2, hidden_size: 256, num_heads: 4, num_kv_heads: 2, intermediate_size: 768, vocab_size: 1000}
nodes: [1]
sequence_length: 128
global_batch: 512
micro_batch_size: 2
compile: true
params: {threads: 1, cpu_memory: false}
strategy: exhaustive
remeasure: 0
timeouts: {first_iteration: 900}
site: {name: laptop, gpu: cpu, gpus_per_node: 1, max_local_ranks: 1, pilot_time: 1h}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="of the sweep; default: a temporary one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for row in measured(arguments.directory or Path(temporary) / "sweep"):
            print("pilot {pilot}: {graphs} graphs compiled, first iterations after {seconds:.1f} s".format(**row))
    return 0


def measured(directory: Path) -> list[dict[str, Any]]:
    """A row per pilot, in turn: graphs compiled, and seconds until the timed iterations. Raises CalledProcessError."""
    grid = directory.with_suffix(".yaml")
    for text, further in ((GRID, []), (GRID + "repeats: 2\n", ["--add"])):
        grid.write_text(text)
        command = [*SWEEP, "launch", str(grid), "--dir", str(directory), "--executor", "local", "--yes", *further]
        subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    found = []
    for record in sorted(swept_in(directory).records, key=lambda record: record["pilot"]):
        extra = json.loads(record["extra_json"])
        seconds = sum(value for name, value in extra["phases_s"].items() if name != "measure")
        found.append({"pilot": record["pilot"], "graphs": extra["graphs_compiled"], "seconds": seconds})
    return found


if __name__ == "__main__":
    sys.exit(main())
