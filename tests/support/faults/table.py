"""The table in docs/research/faults.md: tests write what they measured into the file that SWEEP_FAULT_TABLE names.

python -m tests.support.faults.table    # writes the other columns again, after a change of FAULTS
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import REPOSITORY
from tests.support.slurm.services import machine_lock

MEASURED = ("outcome", "s to detect", "s to clean", "processes left", "next run")
HEAD = ("fault", "acted by", *MEASURED, "lost", "accused")
BEGIN = "| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|\n"
PAGE = REPOSITORY / "docs" / "research" / "faults.md"

NOTHING, ATTEMPT, RUN = "nothing", "the attempt", "the run"
NO_NODE, NODE, ITSELF = "none", "the node", "the run itself"


@dataclass(frozen=True)
class Fault:
    """A row: the columns that are no measurement."""

    acted: str
    """file and function below tests/"""
    lost: str = NOTHING
    accused: str = NO_NODE
    outcome: str = ""
    """empty: the test notes it, with the other measured columns"""


_RANKS = "faults/test_ranks.py::test_faults_of_ranks"
_CLUSTER = "faults/test_cluster.py::"
_KINDS = "crash/test_each_kind.py::test_on_slurm"
_CUT = "faults/test_network.py::test_one_of_eight_nodes_is_cut_off"
_SIGNALS = "faults/test_signals.py::"
_STOPPED = _SIGNALS + "test_processes_that_are_stopped_for_30_s"
_SUSPENDED = _SIGNALS + "test_a_suspended_job_continues"
_DAMAGE = "store/test_damage.py::"
_SLOW = "launcher/test_slow_services.py::"
FAULTS = {
    "a rank sleeps indefinitely in iteration 3 (steady limit 8 s)": Fault(_RANKS, ATTEMPT, NODE),
    "the same, ignoring SIGTERM": Fault("faults/test_ranks.py::test_a_rank_that_ignores_sigterm", ATTEMPT, NODE),
    "60 s first iteration, then 0.1 s: tolerated; then a hang, default limits": Fault(
        "faults/test_ranks.py::test_the_full_limits", ATTEMPT, NODE
    ),
    "a rank double-forks a setsid child that holds memory": Fault(_RANKS),
    "`torch.OutOfMemoryError` raised": Fault(_RANKS, RUN, ITSELF),
    "the kernel's OOM killer, in a memory cgroup": Fault(_RANKS, ATTEMPT),
    "`kill -9` of a rank": Fault(_RANKS, ATTEMPT),
    "segfault": Fault(_RANKS, ATTEMPT),
    "NaN in the weights": Fault(_RANKS, RUN, ITSELF),
    "import error": Fault(_RANKS, RUN, ITSELF),
    "a port in use": Fault(_RANKS, ATTEMPT),
    "disk full (small tmpfs)": Fault(_RANKS, ATTEMPT),
    "scancel": Fault(_CLUSTER + "test_scancel", ATTEMPT),
    "job time limit": Fault(_CLUSTER + "test_the_jobs_time_limit", ATTEMPT),
    "a node's death": Fault(_CLUSTER + "test_a_nodes_death", ATTEMPT, NODE),
    "the leader's node's death": Fault(_CLUSTER + "test_the_leaders_nodes_death", ATTEMPT),
    "slurmd alone killed, back after 5 s": Fault(_CLUSTER + "test_slurmd_alone_killed"),
    "slurmctld down for 10 s": Fault(_CLUSTER + "test_slurmctld_down_and_back"),
    "slurmctld down for 60 s": Fault(_CLUSTER + "test_slurmctld_down_and_back"),
    "slurmdbd down": Fault(_CLUSTER + "test_slurmdbd_down"),
    "shared directory: new files meet a read-only mount, open ones a full disk, for 20 s": Fault(
        _CLUSTER + "test_the_shared_directory_is_full_and_read_only_for_a_while"
    ),
    "shared directory: immutable, open files too, for 30 s": Fault(
        _CLUSTER + "test_the_shared_directory_is_immutable_for_a_while"
    ),
    "shared directory: frozen, every write hangs, for 45 s": Fault(
        _CLUSTER + "test_the_shared_directory_hangs_for_a_while"
    ),
    "`kill -9` of a launcher": Fault(_KINDS),
    "`kill -9` of launcher and leader": Fault(_KINDS, ATTEMPT),
    "`kill -9` of launcher and agent": Fault(_KINDS, ATTEMPT, NODE),
    "`kill -9` of launcher and fork server": Fault(_KINDS, ATTEMPT),
    "`kill -9` of launcher and rank": Fault(_KINDS, ATTEMPT),
    "`kill -9` of launcher and srun": Fault(_KINDS),
    "`kill -9` of launcher and slurmstepd of agents": Fault(_KINDS),
    "`kill -9` of launcher and slurmstepd of the leader": Fault(_KINDS),
    "`scancel -s TERM`: the steps alone are signalled": Fault(
        _SIGNALS + "test_twenty_signals_to_the_steps_of_jobs", ATTEMPT
    ),
    "an agent of 8 is cut off from its leader for 15 s": Fault(_CUT),
    "an agent of 8 is cut off from its leader for 30 s": Fault(_CUT),
    "an agent of 8 is cut off from its leader for 120 s": Fault(_CUT, ATTEMPT),
    "an agent is stopped (SIGSTOP) for 30 s": Fault(_STOPPED),
    "the leader is stopped for 30 s": Fault(_STOPPED),
    "all processes of a pilot are stopped for 30 s": Fault(_STOPPED),
    "`scontrol suspend` for 40 s": Fault(_SUSPENDED),
    "`scontrol suspend` for 75 s": Fault(_SUSPENDED),
    "an agent dies alone": Fault(
        "crash/test_agent_alone.py::test_an_agent_that_dies_alone_leaves_nothing_on_its_node",
        ATTEMPT,
        NODE,
        "node_fail",
    ),
    "launcher and leaders are killed again and again": Fault(
        "faults/test_storm.py::test_a_storm_of_200_runs_on_16_nodes", ATTEMPT, NO_NODE, "lost"
    ),
    "all at once (chaos test, below)": Fault(
        "faults/test_chaos.py::test_a_chaos_of_half_an_hour_on_64_nodes", ATTEMPT, "what was hit", "as each alone"
    ),
    "agents of a pilot start late": Fault(
        "pilot/leader/test_arrival.py::"
        "test_an_agent_that_comes_late_joins_and_runs_that_need_it_are_measured_in_the_same_pilot",
        outcome="the others begin, late ones join",
    ),
    "an agent's connection is lost a second time": Fault(
        "pilot/leader/test_free_nodes.py::test_a_node_whose_connection_was_lost_twice_is_left_out",
        ATTEMPT,
        outcome="the pilot goes on without it",
    ),
    "a connection's frame is changed, repeated or from another connection": Fault(
        "pilot/test_channel.py::test_a_frame_that_was_tampered_with_is_refused", ATTEMPT, outcome="the connection ends"
    ),
    "two dead nodes, or Xids on two nodes, in one run": Fault(
        "state/test_retries.py::test_what_the_cluster_causes_is_retried_within_bounds", ATTEMPT, "the nodes", "retried"
    ),
    "GPU processes of others, MPS or root before the attempt": Fault(
        "pilot/agent/test_processes.py::"
        "test_processes_that_were_on_the_gpus_before_the_attempt_or_are_others_leave_the_node_clean",
        outcome="the node is clean",
    ),
    "half a line (short write) that cannot be undone": Fault(
        _DAMAGE + "test_after_a_short_write_that_cannot_be_undone_the_next_event_begins_a_line",
        outcome="the writer begins a new line",
    ),
    "a damaged line, NUL bytes, a line twice, a journal cut short, 200 times": Fault(
        "store/test_corruptions.py::test_readers_read_all_that_is_whole_and_report_the_rest",
        "the damaged line",
        outcome="the rest is read; file and byte are reported",
    ),
    "NUL bytes at the end (NFS: the size arrives before the data)": Fault(
        _DAMAGE + "test_a_last_line_with_nul_bytes_is_read_once_its_data_has_arrived",
        outcome="read once the data has arrived",
    ),
    "a damaged claim": Fault(
        _DAMAGE + "test_the_attempt_of_a_damaged_claim_is_marked_lost_once_no_pilot_is_left", ATTEMPT, outcome="lost"
    ),
    "a damaged lease": Fault(
        "store/test_lease.py::test_the_launcher_of_a_damaged_lease_is_alive_while_its_journal_grows",
        outcome="held while its journal grows",
    ),
    "a damaged snapshot": Fault("store/test_snapshot.py::test_one_that_does_not_fit_is_ignored", outcome="made again"),
    "a damaged results table": Fault(
        "records/test_collect.py::test_an_unusable_table_is_rebuilt", outcome="made again"
    ),
    "a damaged plan, grid, site or `provenance.json`": Fault(
        _DAMAGE + "test_a_damaged_input_is_one_clear_error", outcome="an error that names it; exit code 2"
    ),
    "the pilots' file system hangs for 75 s, the launcher's does not": Fault(
        "faults/test_stalls.py::test_a_stall_of_the_pilots_file_system_ends_no_pilot", outcome="ok"
    ),
    "the sweep directory is removed while its pilot and launcher run": Fault(
        "faults/test_removed.py::test_a_pilot_and_a_launcher_whose_directory_was_removed_end",
        outcome="both end once it was missing for 10 min",
        lost="the sweep",
    ),
    "resume on a login node of another cluster": Fault(
        "system/test_two_clusters.py::test_a_resume_on_another_cluster_measures_no_run_twice",
        outcome="the other's pilots are not touched",
    ),
    "a scheduler that takes 12 s to answer": Fault(
        _SLOW + "test_a_slow_scheduler_is_asked_less_often", outcome="asked every 2 min"
    ),
    "sbatch refuses for a while (limits, inactive partition, time-outs)": Fault(
        "executors/test_slurm_states.py::test_only_a_rejection_that_is_known_to_be_permanent_is_one",
        outcome="tried again, later each time",
    ),
    "another launcher takes over meanwhile": Fault(
        _SLOW + "test_lost_is_written_under_a_checked_lease_only", outcome="the first writes no `lost`, and ends"
    ),
    "a job is requeued after its pilot ended": Fault(
        "system/test_requeue.py::test_a_requeued_job_does_not_outlive_its_sweep",
        outcome="cancelled at the sweep's end",
    ),
    "nodes of a job differ in CPUs": Fault(
        "pilot/test_cpus.py::test_a_pilot_over_nodes_that_differ", outcome="each agent has all of its node's"
    ),
    "the launcher runs on a host with another network": Fault("faults/test_chaos.py::test_a_short_chaos", outcome="ok"),
}
"""every row, in the table's order"""


@dataclass(frozen=True)
class Row:
    """What one fault cost. None: nothing to detect, or to clean."""

    fault: str
    outcome: str
    detect_s: float | None
    clean_s: float | None
    left: int
    """processes of the sweep a minute later"""
    following: str
    """how the next run ended"""

    @property
    def cells(self) -> list[str]:
        """The measured columns."""
        return [self.outcome, _seconds(self.detect_s), _seconds(self.clean_s), str(self.left), self.following]


def note(
    fault: str,
    outcome: str,
    detect_s: float | None,
    clean_s: float | None,
    left: Sequence[str],
    following: str,
) -> None:
    """Write the row of a fault, replacing an earlier one, where SWEEP_FAULT_TABLE names the page."""
    assert fault in FAULTS, fault
    page = os.environ.get("SWEEP_FAULT_TABLE")
    if page:
        row = Row(fault, outcome, detect_s, clean_s, len(left), following)
        with machine_lock("fault-table"):
            Path(page).write_text(with_row(Path(page).read_text(), row))


def with_row(page: str, *rows: Row) -> str:
    """The page with these rows in its table, all rows in the order of FAULTS, with what FAULTS has of each."""
    before, _, after = _parts(page)
    measured = rows_of(page) | {row.fault: row.cells for row in rows}
    lines = [_line(name, fault, measured.get(name)) for name, fault in FAULTS.items()]
    return before + BEGIN + "".join(line for line in lines if line) + after


def _line(name: str, fault: Fault, measured: Sequence[str] | None) -> str:
    cells = [fault.outcome, "", "", "", ""] if fault.outcome else measured
    if cells is None:
        return ""
    return "| " + " | ".join([name, f"`{fault.acted}`", *cells, fault.lost, fault.accused]) + " |\n"


def rows_of(page: str) -> dict[str, list[str]]:
    """Fault -> the measured cells of its row."""
    _, lines, _ = _parts(page)
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {row[0]: row[2 : 2 + len(MEASURED)] for row in cells}


def _parts(page: str) -> tuple[str, list[str], str]:
    before, _, rest = page.partition(BEGIN)
    lines = rest.splitlines(keepends=True)
    count = next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before, [line.rstrip("\n") for line in lines[:count]], "".join(lines[count:])


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    PAGE.write_text(with_row(PAGE.read_text()))
