"""A check, what it reads, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

WHETHER_GPUS = "GPUs"
"""the check that a node has any: one without fails it alone"""
Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


class Verdict(str, Enum):
    """How a check ended. What could not be read is UNKNOWN, never OK."""

    OK = "ok"
    WARNING = "warning"
    """worth knowing; excludes no node"""
    UNKNOWN = "unknown"
    """unreadable"""
    DIFFERS = "differs"
    """from the majority of the nodes"""
    BELOW_MEDIAN = "below median"
    """slower than the other nodes by more than the tolerance"""
    BELOW_FLOOR = "below floor"
    """less than every healthy machine of the kind has"""
    IMPOSSIBLE = "impossible"
    """above the physical bound: the measurement is wrong"""
    NO_ANSWER = "no answer"
    """the node or its process did not answer in time"""

    def __str__(self) -> str:
        return self.value

    @property
    def unfit(self) -> bool:
        """Whether a node with this verdict must not be measured."""
        return self not in (Verdict.OK, Verdict.WARNING, Verdict.UNKNOWN)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a reader returned, or why it returned nothing."""

    value: Json = None
    error: str = ""

    @classmethod
    def of(cls, values: Json) -> Reading:
        """From JSON as a node sent it; malformed: an unreadable one."""
        if not isinstance(values, Mapping):
            return cls(error="the node sent no reading")
        return cls(value=values.get("value"), error=str(values.get("error") or ""))


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What the site states, and when and of how many nodes a reading was asked for."""

    gpu: str = "cpu"
    gpus_per_node: int = 1
    nodes: int = 1
    asked_at: float | None = None
    """unix seconds of the leader: no reader can have begun before"""
    answered_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A verdict with what was found and what was expected."""

    verdict: Verdict
    found: str = ""
    expected: str = ""
    number: float | None = None
    """what is compared with the other nodes' median"""


Rule = Callable[[Json, Stated], Finding]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check. ``evaluate`` gets what ``reader`` returned; a reader that failed is evaluated UNKNOWN without it."""

    name: str
    tier: str
    """login, node or perf"""
    reader: str
    """"module:function" without arguments that returns JSON; called once for all checks that name it"""
    evaluate: Rule
    remedy: str
    quick: bool = False
    """part of the check of a pilot's nodes before its first run: well under a second"""
    of_site: bool = False
    """where all nodes of a pilot fail it, it is how the cluster is set up: then it is reported, and excludes none"""
    gpu_only: bool = False
    """needs an accelerator"""
    majority: bool = False
    """what is found must be what most nodes have"""
    remark: bool = False
    """with ``majority``: what differs is worth knowing, and excludes no node (as Primus has it for versions)"""
    median: str = ""
    """the unit of a number that must not be below the median of the nodes by more than the tolerance"""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One check's finding on one node (or on the login node)."""

    check: str
    tier: str
    node: str
    finding: Finding
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeReadings:
    """What one node answered; no readings: it did not."""

    node: str
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """reader -> what it returned"""
    problem: str = ""
    """why it did not answer"""
    asked_at: float | None = None
    answered_at: float | None = None


def applicable(checks: Sequence[Check], stated: Stated) -> list[Check]:
    """Those that mean something on this kind of machine."""
    return [check for check in checks if not check.gpu_only or stated.gpu != "cpu"]


def readers(checks: Sequence[Check]) -> list[str]:
    """Their readers, each once."""
    return list(dict.fromkeys(check.reader for check in checks))


def evaluate(check: Check, reading: Reading | None, stated: Stated) -> Finding:
    """The finding on one reading. A rule that cannot make sense of it yields UNKNOWN, too."""
    if reading is None:
        return Finding(verdict=Verdict.UNKNOWN, found="not read")
    if reading.error:
        return Finding(verdict=Verdict.UNKNOWN, found=reading.error)
    try:
        return check.evaluate(reading.value, stated)
    except ValueError as error:
        return Finding(verdict=Verdict.UNKNOWN, found=str(error)[:200])
    except (ArithmeticError, LookupError, TypeError) as error:
        return Finding(verdict=Verdict.UNKNOWN, found=f"unexpected reading: {error!r}"[:200])


def result(check: str, tier: str, node: str, finding: Finding, remedy: str) -> CheckResult:
    """The finding with where it belongs; a remedy only where there is something to remedy."""
    remedy = remedy if finding.verdict is not Verdict.OK else ""
    return CheckResult(check=check, tier=tier, node=node, finding=finding, remedy=remedy)
