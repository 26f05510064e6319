"""Submission of pilots: which are wanted now, their job specs, and the submission: the intent is journalled first."""

from __future__ import annotations

import re
import time

from sweep.errors import SweepError, plural
from sweep.executors.executor import PilotRequest, SubmitError
from sweep.inputs.grid import Grid, max_run_s
from sweep.inputs.site import Site
from sweep.launcher.launcher import Launcher, Width, token_of
from sweep.launcher.pilots_wanted import Capacity, Wanted, nodes_to_avoid, pilots_wanted, unproductive_widths
from sweep.pilot.job_spec import JobSpec, Limits
from sweep.planning.runs import ASSUMED_RUN_S, runs_on
from sweep.search.search import waiting
from sweep.state.events import PilotGone, PilotIntended, PilotSubmitted, SubmitDelayed
from sweep.store.directory import last_output, make_directory

FIRST_BACK_OFF_S = 5.0
"""half of Slurm's default MessageTimeout (10 s): a controller that was busy for one message takes the next"""
MAX_BACK_OFF_S = 300.0
"""five of the controller's default scheduling rounds (sched_interval, 60 s): limits pass as jobs end, not sooner"""
TOP_UP_SHARE = 0.02
"""fraction of a core for computing which pilots are wanted: the cost grows with the runs of the sweep"""
DEFAULT_PREFLIGHT = {False: "quick", True: "off"}
"""by whether all nodes are this machine: the user sees that one already"""
NOTHING_S = 0.01
"""its duration in a small sweep"""
_PILOT_NAME = re.compile(r"p\d+")


class StuckError(SweepError):
    """Nothing more can be done without the user: the scheduler rejects permanently, or pilots cannot work."""

    exit_code = 1


def capacity_of(
    grid: Grid, site: Site, executor: str, *, node_group: str = "", run_s: float = ASSUMED_RUN_S
) -> Capacity:
    """The limits of the site, or of its node group, now, with the known duration of a run."""
    site = site.part(node_group)
    return Capacity(
        node_group=node_group,
        max_pilots=site.max_pilots,
        pilot_time_s=site.pilot_time,
        run_s=run_s,
        attempt_s=max_run_s(grid),
        max_runs_per_pilot=site.max_runs_per_pilot,
        side_by_side=executor != "local",
        now=time.time(),
    )


class Submission:
    """Submits the pilots of a launcher."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._not_before = 0.0
        self._back_off_s = FIRST_BACK_OFF_S

    def hurry(self) -> None:
        """The scheduler answers again: what it refused before says nothing."""
        self._not_before, self._back_off_s = 0.0, FIRST_BACK_OFF_S

    def top_up(self) -> None:
        """Submit the pilots wanted now. Raises StuckError where the scheduler rejects permanently."""
        if time.monotonic() < self._not_before:
            return
        began_s = time.process_time()
        sweep, all_wanted = self._launcher.sweep, list[Wanted]()
        for group in sweep.site.parts:
            run_s = sweep.tally.typical_run_s
            capacity = capacity_of(sweep.grid, sweep.site, sweep.executor, node_group=group, run_s=run_s)
            all_wanted += pilots_wanted(runs_on(sweep.asked_for(), group), sweep.sweep_state, capacity)
        took_s = time.process_time() - began_s
        self._not_before = time.monotonic() + (took_s / TOP_UP_SHARE if took_s > NOTHING_S else 0.0)
        for wanted in all_wanted:
            if not self._submit(wanted):
                break

    def infeasible(self) -> frozenset[Width]:
        """The widths for which pilots are useless, if nothing else waits and no pilot is open; else empty."""
        sweep = self._launcher.sweep
        if self._launcher.open_pilots:
            return frozenset()
        groups, sweep_state = sweep.site.parts, sweep.sweep_state
        given_up = {(group, width) for group in groups for width in unproductive_widths(sweep_state, group)}
        choices = waiting(sweep.asked_for(), sweep_state)
        widths = {(choice.planned.node_group, choice.planned.nodes) for choice in choices}
        return frozenset(given_up) if widths and widths <= given_up else frozenset()

    def why_stuck(self, widths: frozenset[Width]) -> StuckError:
        """The error for pilots that repeatedly started no attempt."""
        sweep = self._launcher.sweep
        name, split = max(sweep.sweep_state.pilots), sweep.grid.split == "reject"
        hint = "`split: reject` leaves out runs whose tp or ep groups their NVLink domains split; " if split else ""
        return StuckError(
            f"pilots of {', '.join(_nodes_text(*width) for width in sorted(widths))} end without starting a run; {hint}"
            f"the last output of {name}: {last_output(self._launcher.directory.pilot(name))}"
        )

    def _submit(self, wanted: Wanted) -> bool:
        """Write the intent, then submit. False where the scheduler must not be asked for a while."""
        launcher = self._launcher
        launcher.lease.check()
        launcher.refresh()
        if launcher.sweep.sweep_state.cancelled:
            return False
        elsewhere = self._elsewhere(wanted)
        request = self._request(wanted, elsewhere)
        directory = launcher.directory.pilot(request.name)
        make_directory(directory)
        self._spec(request).write(directory)
        intent = PilotIntended(
            time=time.time(),
            pilot=request.name,
            token=request.token,
            nodes=request.nodes,
            time_limit_s=request.time_limit_s,
            node_group=request.node_group,
            elsewhere=bool(elsewhere),
            cluster=launcher.executor.cluster(),
        )
        launcher.show_alive()
        launcher.lease.check()  # the scheduler may have been slow to answer
        launcher.write(intent)
        try:
            job_id = launcher.executor.submit(request)
        except SubmitError as error:
            self._failed(request, error, elsewhere=bool(elsewhere))
            return False
        launcher.write(PilotSubmitted(time=time.time(), pilot=request.name, job_id=job_id))
        self._back_off_s = FIRST_BACK_OFF_S
        return True

    def _failed(self, request: PilotRequest, error: SubmitError, *, elsewhere: bool) -> None:
        launcher = self._launcher
        if not error.retry:
            launcher.write(PilotGone(time=time.time(), pilot=request.name, word="REFUSED", reason=str(error)))
            if elsewhere:  # no other nodes: the retry must use the nodes where the run failed
                launcher.same_nodes.add((request.node_group, request.nodes))
                return
            names = sorted(launcher.sweep.sweep_state.excluded_nodes)
            wait = f"{len(names)} nodes are excluded (`sweep nodes` says why), and runs that need them wait"
            hint = f"; {wait}: `sweep nodes release {' '.join(names)}` uses them again" if names else ""
            nodes = _nodes_text(request.node_group, request.nodes)
            mend = f"mend what it names in {launcher.directory.site}, then `sweep resume {launcher.directory.path}`"
            raise StuckError(f"the scheduler rejects the pilot of {nodes}: {error}; {mend}{hint}")
        # It may have been accepted all the same: the intent stays open until the token is searched for.
        launcher.write(SubmitDelayed(time=time.time(), pilot=request.name, reason=str(error)))
        self._not_before = max(self._not_before, time.monotonic() + self._back_off_s)
        self._back_off_s = min(2 * self._back_off_s, MAX_BACK_OFF_S)

    def _elsewhere(self, wanted: Wanted) -> frozenset[str]:
        """The nodes that the pilot's retries must avoid, beyond the excluded ones."""
        launcher = self._launcher
        if launcher.local or (wanted.node_group, wanted.nodes) in launcher.same_nodes:
            return frozenset()
        runs, sweep_state = runs_on(launcher.sweep.asked_for(), wanted.node_group), launcher.sweep.sweep_state
        return nodes_to_avoid(runs, sweep_state, wanted.nodes) - frozenset(sweep_state.excluded_nodes)

    def _request(self, wanted: Wanted, elsewhere: frozenset[str]) -> PilotRequest:
        launcher = self._launcher
        # Known from the journals and, after a crash between the two, from their directories.
        directories = (launcher.directory.path / "pilots").iterdir()
        names = [*launcher.sweep.sweep_state.pilots, *(path.name for path in directories)]
        number = 1 + max((int(name[1:]) for name in names if _PILOT_NAME.fullmatch(name)), default=0)
        name = f"p{number:04d}"
        return PilotRequest(
            token=token_of(launcher.sweep.sweep_id, name),
            name=name,
            nodes=wanted.nodes,
            time_limit_s=wanted.time_limit_s,
            node_group=wanted.node_group,
            exclude=tuple(sorted(elsewhere.union(launcher.sweep.sweep_state.excluded_nodes))),
        )

    def _spec(self, request: PilotRequest) -> JobSpec:
        launcher, grid = self._launcher, self._launcher.sweep.grid
        site, timeouts = launcher.sweep.site.part(request.node_group), grid.timeouts
        return JobSpec(
            name=request.name,
            token=request.token,
            sweep_name=grid.name,
            nodes=request.nodes,
            node_group=request.node_group,
            gpus_per_node=site.gpus_per_node,
            gpu=site.gpu,
            hardware=site.hardware,
            time_limit_s=request.time_limit_s,
            executor=launcher.sweep.executor,
            scratch=site.scratch,
            checkpoint_dir=site.checkpoint_dir,
            compiled_dir=str(launcher.directory.path / "compiled"),
            container_prefix=site.container_prefix,
            srun=site.srun,
            interface=site.interface,
            port_range=site.port_range,
            torch_version=site.torch_version,
            seed=grid.seed,
            strategy=grid.strategy,
            stop_slow=grid.stops_slow,
            budget=grid.limits,
            max_runs=site.max_runs_per_pilot,
            same_nodes=launcher.local or (request.node_group, request.nodes) in launcher.same_nodes,
            isolate=grid.isolate,
            domain_nodes=site.domain_nodes,
            reject_split=grid.split == "reject",
            preflight=grid.preflight or DEFAULT_PREFLIGHT[launcher.local],
            limits=Limits(
                start_s=timeouts.start,
                first_iteration_s=timeouts.first_iteration,
                steady_s=timeouts.steady,
                attempt_s=max_run_s(grid),
            ),
        )


def _nodes_text(node_group: str, nodes: int) -> str:
    return f"{plural(nodes, 'node')} of {node_group}" if node_group else plural(nodes, "node")
