"""How accurate predicted step times are on published tables: python -m benchmarks.accuracy.

By trainer, kind of model, GPU and dtype: the mean absolute and the signed error of predictions before anything is
measured, how often measured values fall into the predicted intervals, and the errors of other models that are installed
on the same rows. ``--tables`` adds each published table apart, the range over values of what it does not state, and the
order of the playbook's cells; ``--rows`` every row with its parts; ``--constants`` prints every constant with its
spread, its source and the tables looked at before it was chosen. ``--tables --write`` stores the tables in docs/data,
from which `python -m docs.generated` makes those of docs/research/prediction.md.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import order_limits, small_to_large
from benchmarks.looked_at import ALL, LOOKED_AT
from benchmarks.mlperf_tables import mlperf_tables
from benchmarks.order_limits import DISTURBED
from benchmarks.peers_prediction import installed, of_rows
from benchmarks.reference_tables import Rows, Table, tables
from benchmarks.sub_tables import bias, lines, mape, sub_tables
from benchmarks.unseen_tables import unseen_tables
from sweep.physics import constants, step_time
from sweep.physics.constants import Constant
from sweep.physics.trainers import TRAINERS


def ratios(table: Table, **assumed: Any) -> Any:
    """log(predicted / measured) of every row."""
    found = []
    for rows in table.rows:
        given = rows.assuming(assumed)
        found.append(np.log(step_time.step_time_s(given.columns, given.gpu, given.profile) / rows.seconds))
    return np.concatenate(found)


def accuracy_lines(found: list[Table]) -> Iterator[str]:
    yield "| table | rows | MAPE | bias | over values of what it does not state |"
    yield "|---|---|---|---|---|"
    for table in found:
        log = ratios(table)
        open_facts = ""
        if table.unknown:
            grid = table.possible()
            errors = [mape(ratios(table, **one)) for one in grid]
            best = grid[int(np.argmin(errors))]
            open_facts = f"{min(errors):.1%} to {max(errors):.1%}; least with " + ", ".join(
                f"{k} {v}" for k, v in best.items()
            )
        yield f"| {table.name} | {len(log)} | {mape(log):.1%} | {bias(log):+.1%} | {open_facts} |"


def ranking(rows: Rows) -> dict[str, Any]:
    """Order within the cells of the playbook (a label is a cell), and bias by number of nodes."""
    predicted = step_time.step_time_s(rows.columns, rows.gpu, rows.profile)
    correlations, regrets, calm = [], [], []
    for cell in dict.fromkeys(rows.labels):
        mine = np.flatnonzero([label == cell for label in rows.labels])
        ours, theirs = predicted[mine], rows.seconds[mine]
        correlations.append(np.corrcoef(np.argsort(np.argsort(ours)), np.argsort(np.argsort(theirs)))[0, 1])
        regrets.append(1 - theirs.min() / theirs[np.argmin(ours)])
        usual = theirs < DISTURBED * ours
        calm.append(1 - theirs[usual].min() / theirs[usual][np.argmin(ours[usual])])
    by_nodes = {}
    for nodes in np.unique(rows.columns["nodes"]):
        log = np.log(predicted / rows.seconds)[rows.columns["nodes"] == nodes]
        by_nodes[int(nodes)] = float(np.exp(log.mean()) - 1)
    return {
        "spearman": float(np.mean(correlations)), "top-1 regret": float(np.mean(regrets)),
        "top-1 regret without disturbed runs": float(np.mean(calm)), "bias by nodes": by_nodes,
    }  # fmt: skip


def order_lines(table: Table) -> Iterator[str]:
    """The order of the playbook's cells over values of what it does not state."""
    (rows,) = table.rows
    yield "| " + " | ".join(table.unknown) + " | Spearman | top-1 regret | MAPE | bias by nodes |"
    yield "|---" * (len(table.unknown) + 4) + "|"
    found = [(facts, ranking(rows.assuming(facts))) for facts in table.possible()]
    for facts, one in found:
        errors = [*one["bias by nodes"].values()]
        yield (
            "| " + " | ".join(map(str, facts.values())) + f" | {one['spearman']:.3f} | {one['top-1 regret']:.1%} | "
            f"{mape(ratios(table, **facts)):.1%} | {min(errors):+.0%} to {max(errors):+.0%} |"
        )
    highest, lowest = (
        choose(one[name] for _, one in found) for choose, name in ((max, "spearman"), (min, "top-1 regret"))
    )
    yield f"\nhighest Spearman {highest:.3f}, lowest top-1 regret {lowest:.1%}\n"


def constant_lines() -> Iterator[str]:
    named: list[tuple[str, Constant]] = []
    for name, value in vars(constants).items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            several = one if isinstance(one, tuple) else (one,)
            named += [(f"{name} {key}".strip(), each) for each in several if isinstance(each, Constant)]
    yield "| constant | median | spread | source | tables looked at before it was chosen |"
    yield "|---|---|---|---|---|"
    for name, one in named:
        yield f"| {name} | {one.median:g} | {one.spread:.0%} | {one.source} | {_looked_at(name)} |"
    for name, behaviour in TRAINERS.items():
        yield f"| trainer {name} | | | {behaviour.source} | {_looked_at(f'trainer {name}')} |"


def _looked_at(name: str) -> str:
    return ", ".join(LOOKED_AT.get(name, ())) or "none"


def row_lines(table: Table) -> Iterator[str]:
    for rows in table.rows:
        found = step_time.predict(rows.columns, rows.gpu, rows.profile)
        total = np.broadcast_to(sum(found.values()), rows.seconds.shape)
        parts = {name: np.broadcast_to(part, rows.seconds.shape) / total for name, part in found.items()}
        for place, label in enumerate(rows.labels):
            shares = " ".join(f"{name} {part[place]:.0%}" for name, part in parts.items() if part[place] > 0.005)
            yield f"  {label}: {total[place] / rows.seconds[place] - 1:+.0%} of {rows.seconds[place]:.4g} s; {shares}"


def table_lines(found: list[Table]) -> dict[str, Iterable[str]]:
    """Each published table apart, the order of the playbook's cells, and small to large, by name."""
    playbook = next(table for table in found if table.name == "playbook")
    head, rule, *each = accuracy_lines(found)
    looked_at = ["yes" if table.name in ALL else "no" for table in found]
    marked = (f"{line} {cell} |" for line, cell in zip(each, looked_at, strict=True))
    return {
        "accuracy_by_table": [f"{head} looked at before |", f"{rule}---|", *marked],
        "playbook_order": order_lines(playbook),
        "playbook_predictors": order_limits.lines(*playbook.rows),
        "small_to_large": small_to_large.lines(found),
    }


def store(name: str, text: Iterable[str]) -> None:
    """A Markdown table as a CSV file."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in "\n".join(text).splitlines()
        if line[:1] == "|"
    ]
    with (DATA / f"{name}.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(row for row in rows if set("".join(row)) != {"-"})


DATA = Path(__file__).parents[1] / "docs" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("--calculon", type=Path, help="a checkout of calculon: its errors on the same rows")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.constants:
        print("\n".join(constant_lines()))
        return
    found = tables() + unseen_tables() + mlperf_tables()
    peers = {name: lambda rows, peer=peer: of_rows(rows, peer) for name, peer in installed(asked.calculon).items()}
    parts = {"accuracy": lines(sub_tables(found, peers)), **(table_lines(found) if asked.tables else {})}
    for name, part in parts.items():
        text = list(part)
        print(f"\n{name}\n", *text, sep="\n")
        if asked.write:
            store(name, text)
    if asked.rows:
        print("\n".join(line for table in found for line in (f"\n{table.name}\n", *row_lines(table))))


if __name__ == "__main__":
    main()
