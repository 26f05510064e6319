"""Conformance checks: what a workload or a trainer adapter must do, as a test.

In the test suite of a package that registers one::

    from sweep.testing import check_workload

    def test_it_conforms():
        check_workload("mybench")

Each check raises ``ConformanceError``, which lists every finding. The project's own plug-ins pass the same checks.
"""

from __future__ import annotations

from sweep.testing.examples import example_run
from sweep.testing.findings import ConformanceError
from sweep.testing.trainers import check_trainer
from sweep.testing.workloads import check_workload

__all__ = [
    "ConformanceError",
    "check_trainer",
    "check_workload",
    "example_run",
]


def __dir__() -> list[str]:
    """The public names alone: for completion by tab."""
    return sorted(__all__)
