"""The record of an attempt: one row of the schema, built in one place."""

from __future__ import annotations

import hashlib
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_type_hints

import msgspec

from sweep.contract import LAYOUT_FIELDS, Measurement, Run, SlowBound
from sweep.files import column_problem
from sweep.outcomes import Outcome
from sweep.physics import shapes
from sweep.physics.groups import FAST, split
from sweep.records.metrics import metrics, own_step_times_s, shape_of, slow_rank
from sweep.records.schema import (
    COLUMNS,
    SLOW,
    Configuration,
    Json,
    Metrics,
    Record,
    Times,
    VerdictColumns,
    json_text,
    over_ranks,
)
from sweep.records.validity import implausible, oddities, of_another_torch, refusal, stopped_after
from sweep.redaction import Redaction, redacted_environment, secret_values
from sweep.state.events import Event, EventError, Recorded, decoder

WORTH_DIGEST = 64
"""characters of a parameter: of a longer text, such as a file's, the record has the digest too, since its copy may lack
what looked like a secret"""
_TYPES = get_type_hints(Record)


@dataclass(frozen=True, kw_only=True)
class EndedAttempt:
    """Which attempt ended, where, when and how: known whether or not anything was measured."""

    run: Run
    number: int
    """1 for the first execution of the run"""
    sweep_name: str
    pilot: str
    job_id: str | None
    nodes: Sequence[str]
    """in node rank order; empty where it is not known"""
    leaf_switches: Sequence[str | None] = ()
    """of the nodes"""
    domains: Sequence[str | None] = ()
    """of the nodes, where known"""
    gpu: str | None
    started_at: float
    """unix seconds"""
    ended_at: float
    outcome: Outcome
    message: str | None = None
    evidence: str | None = None
    """the line that proves the outcome"""
    advice: str | None = None
    times_s: Mapping[str, float] = field(default_factory=dict)
    """how long its parts took, by column (``sweep.records.schema.TIME_NAMES``)"""
    facts: Mapping[str, Json] = field(default_factory=dict)
    """stored in ``extra_json``"""
    notes: tuple[str, ...] = ()
    """A note alone does not make a record suspect: slow communication is slow, not wrong"""
    suspect: bool = False
    """the numbers cannot be trusted"""
    bound: SlowBound | None = None
    """by which it could end early"""
    torch_version: str | None = None
    """the ranks' torch version by the site, None where not stated. A different one is noted"""
    secrets: Collection[str] = ()
    """values that no text of the record may have, besides those of the run's own environment"""


def build_record(attempt: EndedAttempt, measurements: Sequence[Measurement | None] = ()) -> Record:
    """The record of one attempt. ``measurements``: in rank order, None where a rank is missing its own.

    Only ``ok`` has metrics, and it stays ``ok`` only where every rank measured what was requested: else the
    outcome becomes config_mismatch (ran something else), nan_loss (a loss that is not finite) or unknown
    (no measurement).
    """
    run, given = attempt.run, [m for m in measurements if m is not None]
    refused = refusal(run, measurements, attempt.gpu, attempt.bound) if attempt.outcome is Outcome.OK else None
    if refused is not None:
        attempt = replace(attempt, outcome=refused[0], message=refused[1])
    measured = metrics(run, measurements, attempt.gpu, valid=attempt.outcome is Outcome.OK)
    return Record(
        run_id=run.run_id,
        attempt=attempt.number,
        repeat=run.repeat,
        sweep_name=attempt.sweep_name,
        pilot=attempt.pilot,
        job_id=attempt.job_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        **vars(configuration(run, attempt.gpu)),
        **vars(measured),
        **vars(verdict(attempt, measured, given)),
        **vars(times(attempt, given)),
    )


def configuration(run: Run, gpu: str | None) -> Configuration:
    """The run's configuration; parameters are null where it states no shape."""
    shape = shape_of(run)
    return Configuration(
        **{name: getattr(run.layout, name) for name in LAYOUT_FIELDS},
        workload=run.workload,
        model=run.model,
        shape_json=json_text(run.shape),
        parameters_total=None if shape is None else int(shapes.total_parameters(shape)),
        parameters_active=None if shape is None else int(shapes.active_parameters(shape)),
        nodes=run.nodes,
        gpus_per_node=run.gpus_per_node,
        gpus=run.gpus,
        gpu=gpu,
        sequence_length=run.sequence_length,
        dtype=run.dtype,
        compile=run.compile,
        global_batch_tokens=run.global_batch_tokens,
        warmup_iterations=run.warmup_iterations,
        iterations=run.iterations,
        params_json=json_text(Redaction(()).clean_value(run.params)),
        env_json=json_text(redacted_environment(run.env)),
    )


def verdict(attempt: EndedAttempt, measured: Metrics, given: Sequence[Measurement]) -> VerdictColumns:
    """The outcome, and what is odd about the ranks' measurements."""
    odd = oddities(given) + of_another_torch(given, attempt.torch_version)
    odd += implausible(measured, attempt.gpu, attempt.run.dtype)
    step_s, about_its_end = measured.step_time_median_s, []
    timed, bound = stopped_after(given, attempt.bound), attempt.bound
    if attempt.outcome is Outcome.OK and timed is not None and bound is not None:
        lost = f"it had lost to {bound.set_by}, by more than {bound.factor - 1:.0%}"
        about_its_end = [f"stopped after {timed} timed iterations: {lost}"]
    domains = [domain for domain in attempt.domains if domain]
    groups = split(attempt.run, domains) if len(domains) == attempt.run.nodes else None  # else one is not known
    why, axes = "this pilot's nodes cannot keep each in one", [axis for axis in groups or () if axis in FAST]
    about_its_groups = [f"{' and '.join(axes)} groups span several NVLink domains: {why}"] * bool(axes)
    clean = Redaction(secret_values(attempt.run.env) | set(attempt.secrets)).clean  # failing programs print their env
    message, evidence, advice = attempt.message, attempt.evidence, attempt.advice
    return VerdictColumns(
        outcome=attempt.outcome,
        message=message and clean(message),
        evidence=evidence and clean(evidence),
        advice=advice and clean(advice),
        stopped=SLOW if about_its_end else None,
        suspect=bool(odd) or attempt.suspect,
        notes=[clean(note) for note in (*odd, *attempt.notes, *about_its_groups, *about_its_end)],
        node_names=list(attempt.nodes),
        leaf_switches=list(attempt.leaf_switches) if any(attempt.leaf_switches) else None,
        domains=list(attempt.domains) if any(attempt.domains) else None,
        split_groups=groups,
        slow_rank=None if step_s is None else slow_rank(own_step_times_s(given), step_s),
        versions_json=json_text(given[0].versions) if given else None,
        effective_json=json_text(given[0].effective) if given else None,
    )


def times(attempt: EndedAttempt, given: Sequence[Measurement]) -> Times:
    """How long its parts took, and further facts. The whole took from start to end unless ``times_s`` says more."""
    further, timed = dict(attempt.facts), stopped_after(given, attempt.bound)
    texts = {
        name: text for name, text in attempt.run.params.items() if isinstance(text, str) and len(text) > WORTH_DIGEST
    }
    if texts:
        further["params_sha256"] = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    if timed is not None and attempt.bound is not None:
        bound = attempt.bound
        limits = {"bound_s": bound.factor * bound.step_s, "factor": bound.factor}
        further["stopped"] = {"iterations_timed": timed, "set_by": bound.set_by, **limits}
    if given:
        further |= over_ranks([m.extra for m in given])
        further["phases_s"] = over_ranks([m.phases_s for m in given])
        further["device"] = given[0].device
    whole = {"total_s": attempt.ended_at - attempt.started_at}
    imports_s = max((m.phases_s["imports"] for m in given if "imports" in m.phases_s), default=None)
    return Times(**{**whole, **attempt.times_s}, imports_s=imports_s, extra_json=json_text(further))


def record_from(values: Mapping[str, Json]) -> Record:
    """The record of JSON values by column: columns that this version does not know are dropped, missing ones null.

    Raises ValueError naming the first column whose value is of the wrong type, or that is missing and must not be.
    """
    return msgspec.convert(values, Record)


_decode = decoder(Record)
_JSON = tuple(column.name for column in COLUMNS if column.name.endswith("_json"))


def decode_in_full(line: bytes) -> Event:
    """The event of a journal's line, a record with all its columns: those that are missing are null, unknown ones are
    dropped. Raises EventError.
    """
    event = _decode(line)
    if isinstance(event, Recorded):
        for name in _JSON:
            text = getattr(event.record, name)
            if text is not None and (problem := column_problem(name, text)) is not None:
                raise EventError(f"{name}: {problem}")
    return event


def problems(record: Record) -> list[str]:
    """The values that break the schema: of a wrong type, not finite, or too large. Empty if valid."""
    return [
        f"{column.name} must be {column.type}, not {reprlib.repr(value)}"
        for column in COLUMNS
        if not _fits(value := getattr(record, column.name), _TYPES[column.name])
    ]


def _fits(value: Json, kind: type) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    numbers = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, (int, float))]
    return all(abs(number) < (2**63 if isinstance(number, int) else float("inf")) for number in numbers)
