"""A measured configuration in a trainer's own format, made by the trainer's adapter."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench_workloads.trainers.adapter import Launch, from_here
from bench_workloads.trainers.driver.starting import interpreter
from sweep.contract import LAYOUT, Layout, Run, Scalar, Workload, node_group_of
from sweep.errors import Mistake, SweepError
from sweep.executors.script import options_of
from sweep.files import write_whole
from sweep.inputs.check import parameter_problems
from sweep.inputs.site import Site
from sweep.inputs.yaml_lines import load
from sweep.physics.catalogue import MODELS
from sweep.physics.shapes import ModelShape
from sweep.pilot.leader.network import interface_variables
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER
from sweep.redaction import REDACTED, Redaction, redacted_environment, secret_values

MASTER_PORT = 29500
"""torchrun's own default"""
_OF_THE_OUTPUT = ("metrics",)
"""parameters that say how a run's output is read: a command alone needs none"""
CHECKOUT = "--param root=DIR for a checkout, --param workdir=DIR for another directory"


@dataclass(frozen=True)
class Origin:
    """Where runs were measured, as far as that is known: of records in a file it is not."""

    site: Site | None = None
    """its interpreter, variables, shell lines, container and sbatch options are the runs'"""
    directory: Path | None = None
    """where `sweep launch` was called: relative paths of the grid are relative to it"""


@dataclass(frozen=True)
class Made:
    """One cell in a trainer's format."""

    cell: str
    """the cell as text"""
    folder: str
    """name of its files' directory"""
    files: Mapping[str, str]
    note: str
    """what limits it as a statement about this trainer; empty: it measured the run"""
    setup: Sequence[str]
    """the site's shell lines, to run before the command"""
    command: str
    """the start command, after its environment variables. It runs in the files' directory, with paths relative to it;
    or it changes to the directory where the trainer has to start, with absolute paths"""
    batch: Sequence[str]
    """sbatch's options where the command needs a job of its nodes, whose first node runs it; else empty"""


def parameters(options: Sequence[str], trainer: str) -> dict[str, Scalar]:
    """The trainer's parameters of ``--param NAME=VALUE``. Raises SweepError with all that is wrong with them."""
    workload = TRAINER.find(trainer).workload
    given: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            mistakes.append(Mistake("a parameter is NAME=VALUE", f"--param {option}"))
        elif isinstance(workload.params.get(name), str):
            given[name] = text
        else:
            given[name] = load(text, f"--param {option}").value
    problems = parameter_problems({name: (value,) for name, value in given.items()}, workload)
    mistakes += [Mistake(one.fact, f"--param {one.path[-1]}", remedy=one.remedy) for one in problems]
    if mistakes:
        raise SweepError(mistakes)
    return given


def made(
    record: Mapping[str, Any],
    trainer: str,
    iterations: int | None,
    out: Path | None,
    params: Mapping[str, Scalar],
    origin: Origin = Origin(),
) -> Made:
    """A cell's best configuration as the trainer's files and command; ``out``: where they are written.

    ``params`` replace those of the record.

    Raises SweepError if the record lacks values, or the trainer cannot run the layout.
    """
    out = None if out is None else out.absolute()
    given = {n: str(Path(str(v)).absolute()) if n in ("root", "workdir") and v else v for n, v in params.items()}
    with _working_in(origin.directory):
        return _made(record, trainer, iterations, out, given, origin.site)


@contextlib.contextmanager
def _working_in(directory: Path | None) -> Iterator[None]:
    """In that directory, as the ranks were; here where there is none."""
    here = Path.cwd()
    os.chdir(directory or here)
    try:
        yield
    finally:
        os.chdir(here)


def _made(
    record: Mapping[str, Any],
    trainer: str,
    iterations: int | None,
    out: Path | None,
    params: Mapping[str, Scalar],
    site: Site | None,
) -> Made:
    adapter = TRAINER.find(trainer)
    run = run_of(record, trainer)
    run = replace(run, params={**run.params, **params})
    settings = {**adapter.workload.params, **run.params}
    run = from_here(run, settings)
    folder = f"{run.model}-{run.nodes}-nodes".replace("/", "_")
    cell = f"{run.model} on {run.nodes} node{'s' * (run.nodes != 1)}"
    if not run.shape:
        raise SweepError(Mistake("the record lacks the model's shape", path=cell))
    if impossible := _beyond(run, adapter.workload, cell) or _broken(run, adapter.workload, cell):
        raise SweepError(impossible)
    steps = iterations or run.warmup_iterations + run.iterations
    try:
        launch = adapter.configure(run, ".", steps)
        start = str(settings["workdir"] or launch.workdir)
        if start:
            files = (Path() if out is None else out / folder).absolute()
            launch = adapter.configure(run, str(files), steps)
    except (ValueError, KeyError, TypeError) as error:
        raise SweepError(Mistake(f"{trainer} cannot take this run: {error}", path=cell)) from error
    if wrong := _cannot_run(launch, start, cell):
        raise SweepError(wrong)
    there = f"cd {shlex.quote(str(Path(start).absolute()))} && " if start else ""
    measured_by = str(record.get("workload"))
    note = f"measured by the workload {measured_by}, whose parameters are left out: {trainer} was not measured"
    note = "" if measured_by == trainer else note
    own = (site or Site(gpus_per_node=run.gpus_per_node, gpu="cpu")).part(node_group_of(run.model))
    launch = replace(launch, env={**_environment(own), **run.env, **launch.env})
    command = _on_nodes(there + _command(launch, run, settings, own), run.nodes, own)
    return Made(cell, folder, launch.files, note, _setup(own), command, _batch(run.nodes, own))


def _beyond(run: Run, workload: Workload, cell: str) -> list[Mistake]:
    """The values of layout and parameters that the trainer does not support."""
    usual = dataclasses.asdict(Layout()) | {"dtype": "bf16", "compile": False}
    asked = dataclasses.asdict(run.layout) | {"dtype": run.dtype, "compile": run.compile}
    if run.layout.pp == 1:
        del asked["pp_schedule"]
    lacking = [f"{n} = {v}" for n, v in asked.items() if n not in workload.axes and v != usual[n]]
    for name, value in {**{n: v for n, v in asked.items() if n in workload.axes}, **run.params}.items():
        if value not in (choices := workload.choices.get(name, (value,))):
            lacking.append(f"{name} = {value}, only {', '.join(map(str, choices))}")
    return [Mistake(f"{workload.name} has no {text}", path=cell) for text in lacking]


def _broken(run: Run, workload: Workload, cell: str) -> list[Mistake]:
    """The trainer's rules that the run breaks: where a parameter is wrong, it can be given; a layout cannot.

    A parameter that the record does not state has its default there.
    """
    mistakes = []
    for reason in broken_by_run(run, workload):
        named = re.search(r"\bparams\.(\w+)", reason)
        parameter = named[1] if named else None
        if parameter in _OF_THE_OUTPUT:
            continue
        fact = f"{workload.name}: {reason}"
        if parameter is not None and parameter not in run.params:
            fact = f"the trainer {workload.name} needs params.{parameter}, which the record does not state"
        mistakes.append(Mistake(fact, path=cell, remedy=f"--param {parameter}=VALUE" if parameter else None))
    return mistakes


def _cannot_run(launch: Any, start: str, cell: str) -> list[Mistake]:
    """Why the command would not run here: no program, or a directory or script that does not exist."""
    mistakes = []
    if not launch.program:
        mistakes.append(Mistake("the run names no program", path=cell, remedy="params need its arguments"))
    if start and not Path(start).is_dir():
        mistakes.append(Mistake("the trainer's directory does not exist here", start, path=cell, remedy=CHECKOUT))
    script = Path(start, *launch.program[:1])
    is_needed = script.suffix == ".py" and script.name not in launch.files and script.is_absolute()
    if not mistakes and is_needed and not script.exists():
        mistakes.append(Mistake("the trainer's script does not exist here", str(script), path=cell, remedy=CHECKOUT))
    return mistakes


def _command(launch: Launch, run: Run, settings: Mapping[str, Any], site: Site) -> str:
    """The shell command that starts all ranks of a node by torchrun.

    A program that is started once per node and is no Python script starts its ranks itself.
    """
    environment = [assignment(name, value) for name, value in launch.env.items()]
    words = shlex.split(str(settings["prefix"]))
    if launch.python or settings["start"] == "rank":
        python = interpreter({"python": settings["python"] or site.python})
        words += [python, "-m", "torch.distributed.run", *_ranks(run, site)]
        words += [] if launch.python else ["--no-python"]
    words += [*launch.program, *shlex.split(str(settings["arguments"]))]
    return " ".join([*environment, *(word if word in FROM_SLURM else shlex.quote(word) for word in words)])


def _on_nodes(command: str, nodes: int, site: Site) -> str:
    """The command in the site's container, and on every node, where there is a container or several nodes."""
    words = [_SRUN.format(nodes=nodes)] if _needs_srun(nodes, site) else []
    words += [shlex.quote(word) for word in (*(site.srun if words else ()), *site.container_prefix)]
    return " ".join([*words, "sh", "-c", shlex.quote(command)]) if words else command


def _needs_srun(nodes: int, site: Site) -> bool:
    """For several nodes, and where srun starts the container."""
    return nodes > 1 or bool(site.srun)


def _environment(site: Site) -> dict[str, str]:
    """What every rank gets from the site, without secrets."""
    return {**redacted_environment(interface_variables(site.interface)), **redacted_environment(site.env)}


def _setup(site: Site) -> list[str]:
    """The site's shell lines; one with a secret is left out, and stated."""
    redaction = Redaction(secret_values(site.env))
    lines = [redaction.clean(line) for text in site.setup for line in text.splitlines()]
    return [f"# left out, set it first: {line}" if REDACTED in line else line for line in lines]


def _batch(nodes: int, site: Site) -> list[str]:
    return [f"--nodes={nodes}", "--exclusive", *options_of(site)] if _needs_srun(nodes, site) else []


def assignment(name: str, value: str) -> str:
    """A variable before a shell command. A secret is in no record: it is taken from the environment of who runs it."""
    if REDACTED in value:
        return f'{name}="${{{name}:?is a secret, set it first}}"'
    return f"{name}={shlex.quote(value)}"


_SRUN = 'MASTER_ADDR="$(hostname)" srun --nodes={nodes} --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE"'
FROM_SLURM = ('--node-rank="$SLURM_NODEID"', '--master-addr="$MASTER_ADDR"')


def _ranks(run: Run, site: Site) -> list[str]:
    """Torchrun's options."""
    each = f"--nproc-per-node={run.gpus_per_node}"
    if run.nodes == 1:
        return ["--standalone", each]
    port = site.port_range[0] if site.port_range else MASTER_PORT
    return [f"--nnodes={run.nodes}", each, *FROM_SLURM, f"--master-port={port}"]


def run_of(record: Mapping[str, Any], trainer: str) -> Run:
    """The run that a record (JSON values) measured, as a run of the trainer.

    Raises SweepError naming every value that is missing.
    The trainer ignores another workload's parameters and uses its own defaults.
    """
    own = record.get("workload") == trainer
    plain = {f.name for f in dataclasses.fields(Run)} - {"layout", "shape", "params", "env", "workload", "repeat"}
    values = {name: record.get(name) for name in plain}
    layout = {name: record.get(name) for name in LAYOUT}
    texts = {name: record.get(f"{name}_json") for name in ("shape", "params", "env")}
    required = [
        "model",
        "nodes",
        "gpus_per_node",
        "sequence_length",
        "dp",
        "tp",
        "pp",
        "micro_batch_size",
        "grad_accum",
    ]
    mistakes = [f"the record lacks {name}" for name in required if (values | layout).get(name) is None]
    params = json.loads(texts["params"] or "{}") if own else {}
    mistakes += [f"the record lacks params.{n}, a secret" for n, v in params.items() if REDACTED in json.dumps(v)]
    if mistakes:
        where = f"{values.get('model')} on {values.get('nodes')} nodes"
        raise SweepError([Mistake(fact, path=where) for fact in mistakes])
    return Run(
        workload=trainer,
        shape=_shape(texts["shape"], str(values["model"])),
        params=params,
        env=json.loads(texts["env"] or "{}"),
        layout=Layout(**{name: value for name, value in layout.items() if value is not None}),
        **{name: value for name, value in values.items() if value is not None},
    )


def text(cells: Sequence[Made]) -> str:
    """Everything for a terminal; a single file of a single cell is printed alone, so that it can be redirected."""
    if len(cells) == 1 and len(cells[0].files) == 1:
        return next(iter(cells[0].files.values()))
    return "\n".join(line for cell in cells for line in _lines(cell)) + "\n"


def write(cells: Sequence[Made], out: Path) -> Iterator[Path]:
    """One directory per cell with the trainer's files, and the command in `command.sh`. Yields what was written."""
    for cell in cells:
        folder = out / cell.folder
        options = [f"#SBATCH {option}" for option in cell.batch]
        script = "\n".join(["#!/bin/bash", *options, *_title(cell), *cell.setup, cell.command, ""])
        for name, content in {**cell.files, "command.sh": script}.items():
            path = folder / name
            write_whole(path, content)
            yield path


def _lines(cell: Made) -> list[str]:
    lines = _title(cell)
    for name, content in cell.files.items():
        lines += [f"# {name}", content.rstrip("\n")]
    return [*lines, "# command", *cell.setup, cell.command]


def _title(cell: Made) -> list[str]:
    title = f"# {cell.cell}" + (": in a batch job of these nodes, on its first" if cell.batch else "")
    return [title, *([f"# {cell.note}"] if cell.note else [])]


def _shape(text: str | None, model: str) -> dict[str, Any]:
    """Every field of the model's shape: as recorded, else by the model's name; empty if neither is known."""
    if text and (given := json.loads(text)):
        return ModelShape(**given).as_dict()
    return MODELS[model].as_dict() if model in MODELS else {}
