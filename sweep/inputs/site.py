"""Facts about the cluster, as the user states them. Pure: text in, value or mistakes out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
)

from sweep.errors import SweepError, nearest
from sweep.inputs.topology import hosts, stated_domains
from sweep.inputs.validation import SAFE_NAME, SAFE_NAME_WORDS, check, check_kind, seconds
from sweep.inputs.yaml_lines import load
from sweep.physics.hardware import GB, GPUS, Gpu
from sweep.physics.measured import Fabric, MeasuredRates

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
LEAST_PORTS = 8
"""of a port range: for the leader, and the ranks of runs that overlap in time on a node or follow each other at once"""


def _matching(pattern: re.Pattern[str], otherwise: str) -> AfterValidator:
    """A text that the pattern matches as a whole. Of another one the message says ``otherwise``."""

    def checked(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(f"{text[:60]!r} {otherwise}")
        return text

    return AfterValidator(checked)


def _gpu(text: str) -> str:
    if text.lower() not in GPUS:
        raise ValueError(f"unknown GPU kind {text[:40]!r} ({nearest(text, GPUS)})")
    return text.lower()


def _shell_line(text: str) -> str:
    """A line of the user's own shell: passed on unchanged, so only what cannot be a line is refused."""
    if "\0" in text or "\r" in text:
        raise ValueError("a shell line cannot hold NUL or carriage-return characters")
    return text


def _one_line(text: str) -> str:
    if not text.strip() or any(ord(character) < 32 for character in text):
        raise ValueError("expected one line of text without control characters")
    return text


def _sbatch_option(text: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]*(?:[= ][^\n\r\0]*)?", text):
        raise ValueError("an item is not an sbatch option: one line starting with --, such as --exclude=node7")
    name = re.split(r"[= ]", text)[0]
    if name in ("--oversubscribe", "--share"):
        raise ValueError(f"{name} contradicts --exclusive: other jobs on a pilot's nodes would spoil its measurements")
    if name in _OWN_OPTIONS:
        raise ValueError(f"{name} is set by sweep itself: use the site's own key if there is one")
    return text


def _srun_option(text: str) -> str:
    if not re.fullmatch(r"--[a-z][a-z-]*(?:=[^\n\r\0]*)?", text):
        raise ValueError("an item is not an srun option: one word such as --container-image=/images/torch.sqsh")
    name = text.split("=")[0]
    if name in _OWN_SRUN_OPTIONS:
        raise ValueError(f"{name} is set by sweep itself")
    return text


Tuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
"""a list of a file"""


def _of_kind(kind: type) -> BeforeValidator:
    """A value of a class of physics: as it is, or as the file states it."""
    return BeforeValidator(lambda v: v if v is None or isinstance(v, kind) else TypeAdapter(kind).validate_python(v))


def _environment(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: environment_value(name, text) for name, text in value.items()}


def environment_value(name: str, value: Any) -> str:
    """The text of an environment variable. Raises ValueError if name or value is invalid."""
    if not _ENV_NAME.fullmatch(name):
        raise ValueError(f"{name[:60]!r} is not a name of an environment variable")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{name} must be text or a number: quote it, so that its spelling is preserved")
    text = str(value)
    if "\0" in text or "\n" in text:
        raise ValueError(f"{name} cannot hold a new line or NUL")
    return text


_OWN_OPTIONS = frozenset(
    (
        *("--account", "--array", "--chdir", "--comment", "--constraint", "--error", "--exclusive", "--job-name"),
        *("--nice", "--no-kill", "--no-requeue", "--nodes", "--ntasks", "--open-mode", "--output"),
        *("--parsable", "--partition", "--qos", "--requeue", "--reservation", "--signal", "--test-only", "--time"),
        *("--wait", "--wrap"),
    )
)
_OWN_SRUN_OPTIONS = frozenset(
    (
        *("--error", "--exclude", "--immediate", "--input", "--kill-on-bad-exit", "--no-kill", "--nodelist", "--nodes"),
        *("--ntasks", "--ntasks-per-node", "--output", "--overlap", "--pty", "--quiet", "--unbuffered", "--wait"),
    )
)

_BLANKS = "is not allowed here: use letters, digits and _ . , : @ % + / = -, no blanks"
Word = Annotated[str, _matching(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,:@%+/=-]{0,127}"), _BLANKS)]
SafeName = Annotated[str, _matching(re.compile(SAFE_NAME), f"is not allowed here: use {SAFE_NAME_WORDS}")]
"""safe in file names, job names and scripts"""
ShellLines = Annotated[tuple[Annotated[str, AfterValidator(_shell_line)], ...], Tuple]
Environment = Annotated[dict[str, str], BeforeValidator(_environment)]
Seconds = Annotated[float, BeforeValidator(seconds), WithJsonSchema({"type": ["number", "string"]})]


def _umask(text: Any) -> Any:
    if isinstance(text, int):
        raise ValueError("a umask is written in quotes, such as '0027' or '0022': YAML reads 0027 as the number 23")
    if not isinstance(text, str):
        return text
    if not re.fullmatch(r"0?0[0-7]{2}", text):
        raise ValueError(f"{text[:20]!r} is not a umask that leaves the user all rights, such as '0027' or '0022'")
    if not all(int(digit) & 2 for digit in text[-2:]):
        fact = f"{text!r} lets others write to a sweep's directory, and so run commands as you"
        raise ValueError(f"{fact}: write '0027' (the group may read), '0022' (everyone) or '0077' (only you)")
    return text


def _port_range(ports: tuple[int, int] | None) -> tuple[int, int] | None:
    if ports is not None and ports[1] < ports[0] + LEAST_PORTS - 1:
        raise ValueError(f"{list(ports)} are too few ports: give the first and the last of at least {LEAST_PORTS}")
    return ports


def _domains(lists: tuple[str, ...]) -> tuple[str, ...]:
    stated_domains(lists)
    return lists


Port = Annotated[int, Field(ge=1024, le=65535)]


SbatchOptions = Annotated[tuple[Annotated[str, AfterValidator(_sbatch_option)], ...], Tuple]
GpuKind = Annotated[str, AfterValidator(_gpu)]
_NO_FEATURES = "is not a Slurm feature expression: use names joined by & | * [ ] ( )"
Constraint = Annotated[
    str, _matching(re.compile(r"[A-Za-z0-9_\[(][A-Za-z0-9_.,:@%+/=|&*()\[\]!-]{0,255}"), _NO_FEATURES)
]
_VERSION = _matching(
    re.compile(r"\d+(\.\d+){0,5}([abrc.+-][A-Za-z0-9.+-]*)?"), "is not a version: write it in quotes, such as '2.13.0'"
)
_INTERFACE = _matching(
    re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,14}"), "is not the name of a network interface, such as ib0 or eth0"
)


class StatedFile(BaseModel):
    """Base of what a grid or a site file states."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class NodeGroup(StatedFile):
    """Nodes of one kind in a site with several. A key that is not given has the site's value."""

    gpus_per_node: int | None = Field(default=None, ge=1, le=1024)
    gpu: GpuKind | None = None
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    reservation: Word | None = None
    constraint: Constraint | None = None
    max_nodes: int | None = Field(default=None, ge=1, le=100_000)
    """the widest pilot of these nodes; wider runs are measured on other groups only"""
    max_pilots: int | None = Field(default=None, ge=1, le=10_000)
    sbatch: SbatchOptions | None = None
    dollars_per_gpu_hour: float | None = Field(default=None, gt=0)


class Site(StatedFile):
    """One cluster, or one part of it. Each field is a key of the site file."""

    name: SafeName = "site"
    gpus_per_node: int = Field(ge=1, le=1024)
    """ranks per node: GPUs, or processes where gpu is cpu"""
    gpu: GpuKind
    """a GPU type of the table below, or cpu"""
    gpu_memory_gb: float | None = Field(default=None, gt=0)
    """a GPU's memory in GB (10^9 bytes), where it is not the table's: an A100 of 64 GB"""
    partition: Word | None = None
    """as for sbatch; no blanks, quotes or braces"""
    account: Word | None = None
    """as for sbatch; no blanks, quotes or braces"""
    qos: Word | None = None
    """as for sbatch; no blanks, quotes or braces"""
    reservation: Word | None = None
    """as for sbatch; no blanks, quotes or braces"""
    constraint: Constraint | None = None
    """node features, as for sbatch; no blanks, quotes or braces"""
    max_nodes: int | None = Field(default=None, ge=1, le=100_000)
    """a grid with more nodes is rejected"""
    pilot_time: Seconds = 4 * 3600.0
    """wall time of one pilot: `4h`, `30m`, `1-00:00:00`"""
    setup: ShellLines = ()
    """your own shell lines (modules, variables), unchanged; run once at the start of each pilot, on its first node. All
    its nodes inherit the resulting environment"""
    setup_time: Seconds = 900.0
    """longest time that `setup` may take: a pilot whose set-up hangs ends then, and says so in its output"""
    env: Environment = Field(default_factory=dict)
    """environment variables of every rank"""
    container_prefix: Annotated[tuple[Annotated[str, AfterValidator(_one_line)], ...], Tuple] = ()
    """arguments before each agent's command, such as `[apptainer, exec, --nv, image.sif]`"""
    srun: Annotated[tuple[Annotated[str, AfterValidator(_srun_option)], ...], Tuple] = ()
    """further options of the srun that starts the agents, each a single argument that starts with `--`, such as Pyxis'
    `--container-image=/images/torch.sqsh`"""
    sbatch: SbatchOptions = ()
    """further options, each one line that starts with `--`; they replace sweep's own `--mem=0`, `--ntasks-per-node=1`
    and `--gres`"""
    max_pilots: int = Field(default=4, ge=1, le=10_000)
    """pilots queued or running at once"""
    nice: int | None = Field(default=None, ge=-(2**31), le=2**31 - 1)
    """as `sbatch --nice`"""
    max_runs_per_pilot: int | None = Field(default=None, ge=1)
    """default: as many as its time allows; 1: one job per run"""
    torch_version: Annotated[str, _VERSION] | None = None
    """torch on the compute nodes, in quotes; records report nodes that have another. Default: unknown, so every rule
    about torch versions applies"""
    max_local_ranks: int | None = Field(default=None, ge=1, le=65536)
    """concurrent ranks on this machine (local executor)"""
    python: Annotated[str, AfterValidator(_one_line)] | None = None
    """absolute path of the interpreter on compute nodes; default: the one that runs `sweep launch`. Activating a venv
    in `setup` does not change it"""
    poll_interval_s: Seconds = 15.0
    """shortest interval between scheduler queries"""
    scratch: Annotated[str, AfterValidator(_one_line)] = "/tmp"  # noqa: S108
    """a directory on each node's local disk"""
    checkpoint_dir: Annotated[str, _matching(re.compile(r"/[^\x00-\x1f]*"), "is not an absolute path")] | None = None
    """a directory that all nodes see, for the checkpoints of runs with `checkpoint`: each is removed after its run"""
    umask: Annotated[str, BeforeValidator(_umask)] = "0077"
    """who else may read a sweep's directory: '0027' the group, '0022' everyone; in quotes. Others may never write.
    Where grid or site hold a secret, such as a token in `env`, others may not read either"""
    group: Annotated[str, AfterValidator(_one_line)] | None = None
    """a Unix group of yours whose members may read a sweep's directory: its files belong to that group"""
    interface: Annotated[str, _INTERFACE] | None = None
    """the network interface for the leader, the ranks' rendezvous, NCCL and gloo, such as `ib0`. Default: by the host's
    name; interfaces of containers, virtual machines and management controllers are skipped"""
    port_range: Annotated[tuple[Port, Port] | None, Tuple, AfterValidator(_port_range)] = None
    """`[first, last]`: ports for the leader and the ranks' rendezvous, where a firewall lets only some through. NCCL's
    and gloo's own ports cannot be limited"""
    domain_nodes: Annotated[tuple[str, ...], Tuple, AfterValidator(_domains)] = ()
    """the nodes of each NVLink domain, such as `["gb[001-018]", "gb[019-036]"]`. Default: by the driver's fabric id,
    else Slurm's blocks"""
    fabric: Annotated[Fabric | None, _of_kind(Fabric)] = None
    """how many nodes an NVLink domain (or Slurm block) and a leaf switch have, and how many of these there are:
    `{domain_nodes: 18, domains: 2, switch_nodes: 9, switches: 4}`. Default: as Slurm's controller states where `plan`,
    `launch` are run; `domain_nodes` above counts"""
    segment: int | None = Field(default=None, ge=1, le=100_000)
    """nodes that a pilot gets side by side, a wider one several times: by `--segment` with Slurm's topology/block, by
    `--switches` with topology/tree, whose leaf switches have that many"""
    node_groups: dict[SafeName, NodeGroup] = Field(default_factory=dict)
    """nodes of several kinds: each model is measured on each group, as `MODEL@GROUP`"""
    dollars_per_gpu_hour: float | None = Field(default=None, gt=0)
    """what an hour of one GPU costs, for the metric `dollars_per_million_tokens`. May be changed in a sweep's
    `site.yaml` at any time"""
    co2_g_per_kwh: float | None = Field(default=None, ge=0)
    """carbon intensity of the electricity in g CO2 per kWh, for `co2_g_per_million_tokens`; may be changed likewise"""
    failures_per_gpu_day: float | None = Field(default=None, gt=0)
    """how often a job fails, per GPU and day, for `--objective job`; may be changed likewise. Default: the sweep's own
    where it says more, else 0.000474, of Llama 3's training on 16,384 H100 (arXiv 2407.21783)"""
    restart_time: Seconds | None = None
    """from a failure until the job is started again, likewise; its start and the restore are measured. Default: 0"""
    measured: Annotated[MeasuredRates | None, _of_kind(MeasuredRates)] = None
    """measured rates of the cluster; usually in a file of their own, `NAME.measured.yaml`"""

    @property
    def parts(self) -> dict[str, Site]:
        """Node group -> the site as far as it concerns that group's nodes; "" -> itself where there are no groups.

        Rates that were measured on the site hold for its own kind of GPU only.
        """
        found = {}
        for name, group in self.node_groups.items():
            own = {"node_groups": {}} | group.model_dump(exclude_none=True)
            if own.get("gpu", self.gpu) != self.gpu:
                own = {"measured": None, "gpu_memory_gb": None} | own
            found[name] = self.model_copy(update=own)
        return found or {"": self}

    def part(self, node_group: str) -> Site:
        """The part of that node group; the site itself where it has no such group."""
        return self.parts.get(node_group, self)

    @property
    def linked_gpus(self) -> int:
        """GPUs that fast links join: a node's, or of several nodes those of a rack's NVLink domain."""
        return max(self.gpus_per_node, self.hardware.link_domain or 0)

    @property
    def hardware(self) -> Gpu:
        """The known facts about the site's GPU kind, with what was measured on the site, and its NVLink domains."""
        known, fabric, stated = GPUS[self.gpu], self.fabric, [len(hosts(nodes)) for nodes in self.domain_nodes]
        if stated:
            fabric = replace(fabric or Fabric(), domain_nodes=max(stated), domains=len(stated))
        linked = fabric.domain_nodes * self.gpus_per_node if fabric and (stated or known.link_domain) else 0
        known = replace(known, measured=self.measured, fabric=fabric, link_domain=linked or known.link_domain)
        return known if self.gpu_memory_gb is None else replace(known, memory_bytes=int(self.gpu_memory_gb * GB))


def parse_measured(text: str, file: str) -> MeasuredRates:
    """The rates that ``site.measured.yaml`` states. Raises SweepError with every mistake at its line."""
    document = load(text, file)
    found, problems = check(MeasuredRates, document.value)
    if found is None or document.mistakes:
        raise SweepError(document.located(problems))
    return found


def parse_site(text: str, file: str) -> Site:
    """The site that the text states. Raises SweepError with every mistake at its line."""
    document = load(text, file)
    check_kind(document, "site", Site.model_fields, ("gpu", "gpus_per_node", "partition"))
    site, problems = check(Site, document.value)
    if site is None or document.mistakes:
        raise SweepError(document.located(problems))
    return site
