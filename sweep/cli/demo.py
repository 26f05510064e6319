"""`sweep demo`: a sweep on this machine alone, from the grid that comes with the package to its heatmap."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from sweep.cli.command import SweepCommand
from sweep.cli.launch import cost_text, note, show_launched
from sweep.cli.live import live_view
from sweep.cli.names import directory_option
from sweep.errors import Mistake, SweepError
from sweep.files import shipped_folder

NO_TORCH = (
    "`pip install torch`. Without a GPU the CPU build is enough (about 200 MB; on Linux pip's default index has the "
    "CUDA build, over 2 GB with its libraries): PyTorch's installation page names its index of CPU builds"
)


@click.command(cls=SweepCommand)
@directory_option("Sweep directory.", Path("sweeps") / "demo")
def demo(directory: Path) -> int:
    """Measure 16 layouts of two tiny models with real torch processes on this machine, and draw the heatmap.

    Needs no GPU and no Slurm; takes a few minutes. The grid is examples/laptop.yaml; the best layouts are measured
    twice. Safe to kill; run again to resume.

    \b
    Examples:
      sweep demo
      sweep demo --dir /tmp/demo
    """
    from sweep.inputs.load import load_grid
    from sweep.library.launch import launch

    if importlib.util.find_spec("torch") is None:
        raise SweepError(Mistake("the demo trains with torch, which is not installed here", remedy=NO_TORCH))
    grid = load_grid(shipped_folder("examples") / "laptop.yaml")
    with live_view() as show:
        launched = launch(
            grid, directory=directory, executor="local", on_step=show, note=note,
            approve=lambda about: note(f"sweep: {cost_text(about)}"),
        )  # fmt: skip
    return show_launched(launched, detach=False, as_json=False)
