"""Conformance checks: what a workload, trainer adapter, search strategy or tracker must do, as a test.

In the test suite of a package that registers one::

    from sweep.testing import check_workload

    def test_it_conforms():
        check_workload("mybench")

Each check raises ``ConformanceError``, which lists every finding. The project's own plug-ins pass the same checks.
"""

from __future__ import annotations

from sweep.testing.examples import example_run
from sweep.testing.findings import ConformanceError
from sweep.testing.strategies import check_strategy
from sweep.testing.trackers import check_tracker, example_attempt
from sweep.testing.trainers import check_trainer
from sweep.testing.workloads import check_workload

__all__ = [
    "ConformanceError",
    "check_strategy",
    "check_tracker",
    "check_trainer",
    "check_workload",
    "example_attempt",
    "example_run",
]


def __dir__() -> list[str]:
    """The public names alone: for completion by tab."""
    return sorted(__all__)
