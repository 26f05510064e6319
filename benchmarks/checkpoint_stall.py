"""How long a checkpoint stops training where writing is slow: python -m benchmarks.checkpoint_stall [--mib-per-s 16]

Mounts a directory whose writing bindfs (FUSE) limits, and measures each kind of checkpoint there by a real sweep on
this machine (local executor, two ranks, CPU). Prints Markdown, for docs/checkpoints.md. Needs bindfs, and /dev/fuse.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KINDS = ("sync", "async", "async_pinned")
GRID = """
name: checkpoint-stall
models:
  - four-layers: {{num_layers: 4, hidden_size: 256, num_heads: 4, intermediate_size: 1024, vocab_size: 8192}}
nodes: [1]
sequence_length: 128
global_batch: 1024
micro_batch_size: 4
zero: 3
tp: 1
pp: 1
recompute: none
dtype: fp32
strategy: exhaustive
repeats: 1
params: {{cpu_memory: false, threads: 1, checkpoint: [{kinds}]}}
site: {{name: here, gpu: cpu, gpus_per_node: 2, max_local_ranks: 2, checkpoint_dir: "{directory}"}}
"""


@contextmanager
def limited(folder: Path, mib_per_s: float) -> Iterator[Path]:
    """A directory to which so much is written at most, by all together."""
    behind, mount = folder / "behind", folder / "mount"
    behind.mkdir()
    mount.mkdir()
    subprocess.run(["bindfs", f"--write-rate={round(mib_per_s * 1024)}k", str(behind), str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["fusermount", "-u", "-z", str(mount)], check=False)


def measured(folder: Path, mib_per_s: float, kinds: Sequence[str] = KINDS) -> list[dict[str, Any]]:
    """What the record of each kind states, by a sweep."""
    import analysis

    grid = folder / "grid.yaml"
    with limited(folder, mib_per_s) as mount:
        grid.write_text(GRID.format(kinds=", ".join(kinds), directory=mount))
        command = [sys.executable, "-m", "sweep.cli.main", "launch", str(grid), "--dir", str(folder / "s")]
        subprocess.run([*command, "--executor", "local", "--yes"], check=True, stdout=sys.stderr)
        left = sorted(path.name for path in mount.iterdir())
    if left:
        raise RuntimeError(f"checkpoints are left: {left}")
    rows = analysis.load(folder / "s").to_dict("records")
    found = {json.loads(row["params_json"])["checkpoint"]: row | json.loads(row["extra_json"]) for row in rows}
    return [found[kind] | {"kind": kind} for kind in kinds]


def table(rows: Sequence[dict[str, Any]], mib_per_s: float) -> str:
    """Markdown."""
    lines = [
        f"| checkpoint, writing at {mib_per_s:g} MiB/s | bytes / bandwidth | stall | steps slower by | whole after |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        expected = row["checkpoint_bytes"] / (mib_per_s * 2**20)
        lines.append(
            f"| `{row['kind']}` | {expected:.2f} s | {row['checkpoint_stall_s']:.2f} s "
            f"| {row['checkpoint_slowdown']:.0%} | {row['checkpoint_durable_s']:.2f} s |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib-per-s", type=float, default=16.0)
    rate = parser.parse_args().mib_per_s
    with tempfile.TemporaryDirectory() as folder:
        print(table(measured(Path(folder), rate), rate))


if __name__ == "__main__":
    main()
