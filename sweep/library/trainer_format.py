"""A measured configuration in a trainer's own format, made by the trainer's adapter.

Others may have written a record: its texts become words, comments and plain names (``sweep.stated``), and open no file.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench_workloads.trainers.adapter import Adapter, Launch, from_here
from bench_workloads.trainers.driver.starting import interpreter
from sweep.contract import FURTHER, LAYOUT, Layout, Run, Scalar, StatedRun, Workload, further_of, node_group_of
from sweep.errors import Mistake, SweepError, plural
from sweep.executors.script import options_of
from sweep.files import write_whole
from sweep.inputs.check import parameter_problems
from sweep.inputs.load import parameter_text
from sweep.inputs.site import Site
from sweep.inputs.yaml_lines import load
from sweep.physics.catalogue import MODELS
from sweep.pilot.leader.network import interface_variables
from sweep.planning.effects import with_effect
from sweep.planning.rules import broken_by_run
from sweep.plugins import TRAINER
from sweep.redaction import REDACTED, Redaction, redacted_environment, secret_values
from sweep.stated import Stated, shell_word, stated_shape, stated_values

MASTER_PORT = 29500
"""torchrun's own default"""
_OF_THE_OUTPUT = ("metrics",)
"""parameters that say how a run's output is read: a command alone needs none"""
_SCRIPT = "command.sh"
_STATED = ("model", "nodes", "gpus_per_node", "sequence_length", "dp", "tp", "pp", "micro_batch_size", "grad_accum")
"""what a record must state of a run"""
_FROM_0 = ("zero", "warmup_iterations", "compile", *FURTHER)
"""numbers of a run that may be 0"""
CHECKOUT = "--param root=DIR for a checkout, --param workdir=DIR for another directory"


@dataclass(frozen=True)
class Origin:
    """Where runs were measured, as far as that is known: of records in a file it is not."""

    site: Site | None = None
    """its interpreter, variables, shell lines, container and sbatch options are the runs'"""
    directory: Path | None = None
    """where `sweep launch` was called: relative paths of the grid are relative to it"""
    own: bool = False
    """the user made the records' directory. Of others' nothing is looked up here"""


@dataclass(frozen=True)
class Made:
    """One cell in a trainer's format."""

    cell: str
    """the cell as text on a line"""
    source: str
    """whose texts these are, as a comment; empty: the user's own"""
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
            try:
                given[name] = parameter_text(text) if name in workload.texts else text
            except ValueError as error:
                mistakes.append(Mistake(str(error), f"--param {name}"))
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
    given = {n: str(Path(str(v)).absolute()) if n in ("root", "workdir") and v else v for n, v in params.items()}
    adapter, here = TRAINER.find(trainer), Path.cwd() / (origin.directory or "")
    run = stated = run_of(record, trainer)
    settings = {**adapter.workload.params, **run.params, **given}
    run = from_here(replace(run, params={**run.params, **given}), settings, here)
    folder = Stated(f"{run.model}-{run.nodes}-nodes").file_name()
    cell = f"{Stated(run.model).line()} on {plural(run.nodes, 'node')}"
    if impossible := _beyond(run, adapter.workload, cell) or _broken(run, adapter.workload, cell):
        raise SweepError(impossible)
    launch, start = _launch(adapter, run, iterations, here, (Path() if out is None else out / folder).absolute(), cell)
    known = origin.own or (origin.directory is None and stated.params.keys() <= given.keys())
    if wrong := _cannot_run(launch, start, cell, known=known):
        raise SweepError(wrong)
    there = f"cd {shell_word(start)} && " if start else ""
    measured_by = str(record.get("workload"))
    note = f"the workload {Stated(measured_by).line()}, whose parameters are left out: {trainer} was not measured"
    note = "" if measured_by == trainer else f"measured by {note}"
    own = (origin.site or Site(gpus_per_node=run.gpus_per_node, gpu="cpu")).part(node_group_of(run.model))
    shared = {**redacted_environment(interface_variables(own.interface)), **redacted_environment(own.env)}
    launch = replace(launch, env={**shared, **run.env, **launch.env})
    command = _on_nodes(there + _command(launch, run, settings, own), run.nodes, own)
    run_id = Stated(record.get("run_id")).line()
    source = "" if origin.own else f"texts of the record {run_id}, which others may have written: read before running"
    batch = [f"--nodes={run.nodes}", "--exclusive", *options_of(own)] if _needs_srun(run.nodes, own) else []
    return Made(cell, source, folder, launch.files, note, _setup(own, mine=origin.own), command, batch)


def _launch(
    adapter: Adapter, run: StatedRun, iterations: int | None, here: Path, files: Path, cell: str
) -> tuple[Launch, str]:
    """How the run is started, and the directory where it must be, if any: then with absolute paths of its files."""
    steps = iterations or run.warmup_iterations + run.iterations
    try:
        launch = adapter.configure(run, ".", steps)
        start = str(run.params.get("workdir", adapter.workload.params["workdir"]) or launch.workdir)
        launch = adapter.configure(run, str(files), steps) if start else launch
        if _SCRIPT in launch.written():
            raise ValueError(f"{_SCRIPT} is the script's own name")
    except (ValueError, KeyError, TypeError) as error:
        raise SweepError(Mistake(f"{adapter.workload.name} cannot take this run: {error}", path=cell)) from error
    return launch, os.path.normpath(here / start) if start else ""


def _beyond(run: Run, workload: Workload, cell: str) -> list[Mistake]:
    """The values of layout and parameters that the trainer does not support."""
    usual = vars(Layout()) | {"dtype": "bf16", "compile": False}
    stated = vars(run.layout) | {"dtype": run.dtype, "compile": run.compile}
    asked = {name: with_effect({"num_experts": 0, **run.shape, **stated}, workload)[name] for name in stated}
    lacking = [f"{n} = {Stated(v).line()}" for n, v in asked.items() if n not in workload.axes and v != usual[n]]
    for name, value in {**{n: v for n, v in asked.items() if n in workload.axes}, **run.params}.items():
        if value not in (choices := workload.choices.get(name, (value,))):
            shown = f"{Stated(name).line()} = {Stated(value).line()}"
            lacking.append(f"{shown}, only {', '.join(map(str, choices))}")
    return [Mistake(f"{workload.name} has no {text}", path=cell) for text in lacking]


def _broken(run: Run, workload: Workload, cell: str) -> list[Mistake]:
    """The trainer's rules that the run breaks: where a parameter is wrong, it can be given; a layout cannot.

    A parameter that the record does not state has its default there.
    """
    mistakes = []
    asked = replace(run, params={name: value for name, value in run.params.items() if name not in _OF_THE_OUTPUT})
    for reason in broken_by_run(asked, workload):
        named = re.search(r"\bparams\.(\w+)", reason)
        parameter = named[1] if named else None
        if parameter in _OF_THE_OUTPUT:
            continue
        fact = f"{workload.name}: {Stated(reason).line()}"
        if parameter is not None and parameter not in run.params:
            fact = f"the trainer {workload.name} needs params.{parameter}, which the record does not state"
        mistakes.append(Mistake(fact, path=cell, remedy=f"--param {parameter}=VALUE" if parameter else None))
    return mistakes


def _cannot_run(launch: Launch, start: str, cell: str, *, known: bool) -> list[Mistake]:
    """Why the command would not run here: no program, or a directory or script that does not exist.

    ``known``: its paths are the user's own. A stranger's may be on another machine, and are not looked up.
    """
    mistakes = []
    if not launch.program:
        mistakes.append(Mistake("the run names no program", path=cell, remedy="params need its arguments"))
    if not known:
        return mistakes
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
    words = _split(settings["prefix"])
    if launch.python or settings["start"] == "rank":
        python = interpreter({"python": settings["python"] or site.python})
        words += [python, "-m", "torch.distributed.run", *_ranks(run, site)]
        words += [] if launch.python else ["--no-python"]
    words += [*launch.program, *_split(settings["arguments"])]
    return " ".join([*environment, *(word if word in FROM_SLURM else shell_word(word) for word in words)])


def _split(text: object) -> list[str]:
    try:
        return shlex.split(str(text))
    except ValueError as error:
        raise SweepError(Mistake(f"no words of a shell: {Stated(text).line()}: {error}")) from None


def _on_nodes(command: str, nodes: int, site: Site) -> str:
    """The command in the site's container, and on every node, where there is a container or several nodes."""
    words = [_SRUN.format(nodes=nodes)] if _needs_srun(nodes, site) else []
    words += [shell_word(word) for word in (*(site.srun if words else ()), *site.container_prefix)]
    return " ".join([*words, "sh", "-c", shell_word(command)]) if words else command


def _needs_srun(nodes: int, site: Site) -> bool:
    """For several nodes, and where srun starts the container."""
    return nodes > 1 or bool(site.srun)


def _setup(site: Site, *, mine: bool) -> list[str]:
    """The site's shell lines; one with a secret is left out, and stated. Of somebody else's site all are comments."""
    redaction = Redaction(secret_values(site.env))
    lines = [redaction.clean(line) for text in site.setup for line in text.splitlines()]
    if not mine:
        return [f"# setup that others wrote, left out: {Stated(line).line()}" for line in lines]
    return [f"# left out, set it first: {line}" if REDACTED in line else line for line in lines]


def assignment(name: str, value: str) -> str:
    """A variable before a shell command. A secret is in no record: it is taken from the environment of who runs it.

    Raises SweepError where the name is none, or no script can hold the value.
    """
    name = Stated(name).variable()
    if REDACTED in value:
        return f'{name}="${{{name}:?is a secret, set it first}}"'
    return f"{name}={shell_word(value)}"


_SRUN = 'MASTER_ADDR="$(hostname)" srun --nodes={nodes} --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE"'
FROM_SLURM = ('--node-rank="$SLURM_NODEID"', '--master-addr="$MASTER_ADDR"')


def _ranks(run: Run, site: Site) -> list[str]:
    """Torchrun's options."""
    each = f"--nproc-per-node={run.gpus_per_node}"
    if run.nodes == 1:
        return ["--standalone", each]
    port = site.port_range[0] if site.port_range else MASTER_PORT
    return [f"--nnodes={run.nodes}", each, *FROM_SLURM, f"--master-port={port}"]


def run_of(record: Mapping[str, Any], trainer: str) -> StatedRun:
    """The run that a record (JSON values) measured, as a run of the trainer.

    Raises SweepError naming every value that is missing, and for JSON that does not state what it should.
    The trainer ignores another workload's parameters and uses its own defaults.
    """
    own = record.get("workload") == trainer
    plain = {f.name for f in dataclasses.fields(Run)} - {"layout", "shape", "params", "env", "workload", "repeat"}
    values = {name: record.get(name) for name in plain}
    layout = {name: record.get(name) for name in LAYOUT} | further_of(record)
    mistakes = [f"the record lacks {name}" for name in _STATED if (values | layout).get(name) is None]
    sizes = [(name, v) for name, v in (values | layout).items() if isinstance(v, int)]
    mistakes += [f"the record states {name} = {v}" for name, v in sizes if not (name not in _FROM_0) <= v < 2**31]
    params, env = stated_values(record, "params_json") if own else {}, stated_values(record, "env_json")
    mistakes += [
        f"the record lacks params.{Stated(n).line()}, a secret" for n, v in params.items() if REDACTED in str(v)
    ]
    shape = stated_shape(record) or MODELS.get(str(values["model"]))
    if mistakes or shape is None:
        mistakes += ["the record lacks the model's shape"] * (shape is None)
        where = f"{Stated(values.get('model')).line()} on {values.get('nodes')} nodes"
        raise SweepError([Mistake(fact, path=where) for fact in mistakes])
    return StatedRun(
        workload=trainer,
        shape=shape.stated(),
        params=params,
        env={name: str(value) for name, value in env.items()},
        layout=Layout(**{name: value for name, value in layout.items() if value is not None}),
        **{name: value for name, value in values.items() if value is not None},
    )


def text(cells: Sequence[Made]) -> str:
    """Everything for a terminal; a single file of a single cell is printed alone, so that it can be redirected."""
    if len(cells) == 1 and len(cells[0].files) == 1:
        return next(iter(cells[0].files.values()))
    return "\n".join(line for cell in cells for line in _lines(cell)) + "\n"


def write(cells: Sequence[Made], out: Path) -> Iterator[Path]:
    """One directory per cell with the trainer's files, and the command in `command.sh`. Yields what was written.

    Raises SweepError where such a directory is a link, which may lead elsewhere.
    """
    links = [str(out / cell.folder) for cell in cells if (out / cell.folder).is_symlink()]
    if links:
        raise SweepError([Mistake("is a link: files are written in --out only", file=link) for link in links])
    for cell in cells:
        folder = out / cell.folder
        options = [f"#SBATCH {option}" for option in cell.batch]
        script = "\n".join(["#!/bin/bash", *options, *_title(cell), *cell.setup, cell.command, ""])
        for name, content in {**cell.files, _SCRIPT: script}.items():
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
    return [title, *(f"# {text}" for text in (cell.note, cell.source) if text)]
