"""sweep: find the fastest parallel configuration for every model size on every cluster size.

For scripts and notebooks, the commands as functions:

    import sweep

    grid = sweep.load_grid("grid.yaml", ["nodes=[1,2]"])
    site = sweep.load_site(grid, "site.yaml")
    plan = sweep.plan(grid, site)                       # plan.runs, plan.table
    launched = sweep.launch(grid, site, directory="sweeps/first")
    records = sweep.read_records("sweeps/first")        # collects, then a DataFrame: one row per attempt
    best = sweep.best("sweeps/first")                   # the best configuration of each cell, and how sure it is

They take and return values, and never print. A mistake in the input raises ``SweepError``, which holds every mistake at
once. Tables and pictures of records: ``import analysis``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweep.errors import SweepError as SweepError
    from sweep.inputs.grid import Grid as Grid
    from sweep.inputs.load import load_grid as load_grid
    from sweep.inputs.load import load_site as load_site
    from sweep.inputs.site import Site as Site
    from sweep.library.compare import compare as compare
    from sweep.library.launch import cancel as cancel
    from sweep.library.launch import launch as launch
    from sweep.library.launch import resume as resume
    from sweep.library.plan import plan as plan
    from sweep.library.sources import collect as collect
    from sweep.library.sources import status as status
    from sweep.library.winners import best as best
    from sweep.planning.runs import Plan as Plan
    from sweep.records.collect import read_records as read_records
    from sweep.store.sweep import Sweep as Sweep
    from sweep.store.sweep import open_sweep as open_sweep
    from sweep.version import __version__ as __version__

_PLACES = {
    "Grid": "sweep.inputs.grid:Grid",
    "Plan": "sweep.planning.runs:Plan",
    "Site": "sweep.inputs.site:Site",
    "Sweep": "sweep.store.sweep:Sweep",
    "SweepError": "sweep.errors:SweepError",
    "__version__": "sweep.version:__version__",
    "best": "sweep.library.winners:best",
    "cancel": "sweep.library.launch:cancel",
    "collect": "sweep.library.sources:collect",
    "compare": "sweep.library.compare:compare",
    "launch": "sweep.library.launch:launch",
    "load_grid": "sweep.inputs.load:load_grid",
    "load_site": "sweep.inputs.load:load_site",
    "open_sweep": "sweep.store.sweep:open_sweep",
    "plan": "sweep.library.plan:plan",
    "read_records": "sweep.records.collect:read_records",
    "resume": "sweep.library.launch:resume",
    "status": "sweep.library.sources:status",
}
__all__ = sorted(_PLACES)  # noqa: PLE0605 - each name is loaded when it is first asked for


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for: `import sweep` alone costs nothing, in ranks and agents too."""
    if name not in _PLACES:
        raise AttributeError(f"module 'sweep' has no attribute {name!r}")
    from sweep.plugins import load_object

    return load_object(_PLACES[name])
