"""Does the demo claim more than it knows? Run it several times, and compare what the runs say of the same cell.

    python -m benchmarks.demo_claims /tmp/demos --times 5

A winner that one demo calls "clear" must be the winner, or within the noise of it, in every other. Run it on a busy
machine too: that is where single runs mislead. A demo that is complete in its directory is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LAYOUT = ("dp", "tp", "pp", "zero", "micro_batch_size", "grad_accum")
Row = Mapping[str, Any]


def main() -> int:
    """Exit 1 where a claim is contradicted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--times", type=int, default=5)
    given = parser.parse_args()
    found = [_demo(given.directory / str(number)) for number in range(1, given.times + 1)]
    for number, rows in enumerate(found, start=1):
        for row in rows:
            print(f"demo {number}: {row['model']} on {row['nodes']}: {_layout(row)}: {row['sureness']}")
    wrong = contradicted(found)
    for text in wrong:
        print(f"contradicted: {text}")
    clear = sum(row["verdict"] == "clear" for rows in found for row in rows)
    print(
        f"{len(found)} demos, {sum(map(len, found))} winners, {clear} called clear, {len(wrong)} of them contradicted"
    )
    return 1 if wrong else 0


def contradicted(found: Sequence[Sequence[Row]]) -> list[str]:
    """Each clear winner that is not the winner of the same cell in another demo, unless that one calls it a tie."""
    texts = []
    for number, rows in enumerate(found, start=1):
        for row in (row for row in rows if row["verdict"] == "clear"):
            cell = (row["model"], row["nodes"])
            others = [(at, r) for at, rs in enumerate(found, 1) for r in rs if (r["model"], r["nodes"]) == cell]
            texts += [
                f"demo {number} is sure of {_layout(row)} for {cell[0]} on {cell[1]}, demo {at} has {_layout(other)}"
                for at, other in others
                if _layout(other) != _layout(row) and other["verdict"] != "tie"
            ]
    return texts


def _demo(directory: Path) -> list[Row]:
    command = [sys.executable, "-m", "sweep.cli.main"]
    subprocess.run([*command, "demo", "--dir", str(directory)], check=True)
    done = subprocess.run([*command, "best", str(directory), "--json"], check=True, capture_output=True, text=True)
    rows: list[Row] = json.loads(done.stdout)
    return rows


def _layout(row: Row) -> str:
    return " ".join(f"{name}={row[name]}" for name in LAYOUT)


if __name__ == "__main__":
    sys.exit(main())
