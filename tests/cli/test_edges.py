"""Every command behaves in the same way at its edges: bad paths, foreign files, full and read-only file systems.

The commands and their paths are taken from the CLI itself, so that a new one is tested without being added here.
"""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweep.cli.command import InputPath, OutputPath, SweepCommand
from sweep.store.directory import SweepDir
from sweep.store.place import adopt
from tests.support.command_line import commands, long_name
from tests.support.made_sweeps import GRID, measured, tree
from tests.support.mounts import fill, full_mount
from tests.support.paths import REPOSITORY
from tests.support.prepared import Server

__all__ = ["full_mount"]

SECRET = "hunter2-sk-93a7"
TOO_LONG = "a" * 300
VALUES = {
    # what an argument or a required option gets where another parameter is tested
    "GRID": "grid.yaml", "DIR": "s", "FILE": "table.csv", "ARCHIVE": "s.tar.zst",
    "RUN": "n1-dp2", "MODEL": "1B",
    "--tokens": "1T", "--to": "wandb", "--format": "json",
}  # fmt: skip
ON_H100 = "site={gpu: h100, gpus_per_node: 8, pilot_time: 1h}"
ALONE = {
    "plan": {"--heatmap": (str(REPOSITORY / "examples" / "certify.yaml"), "-o", ON_H100)},
    "explain": {"--log": ()},
    "size": {"--from": ("--model", "1B", "--gpus", "8")},
    "report": {"--figures": ("scaling",)},
}
"""what goes with an option, where it is not the command's required arguments"""
EXTRA = {"launch": ("--executor", "local", "--yes"), "init": ("--executor", "local"), "report": ("--no-figures",),
         "rerun": ("--failed",), "track": ("--to", "wandb"),
         "nodes": ("exclude", "n7"), "compare": ("s", "s/.")}  # fmt: skip
WHILE = {"best": ("--format", "megatron"), "memory": ("1B",), "plan": ("-o", "site.gpu=h100")}


@dataclass(frozen=True)
class Place:
    """A path that a command takes."""

    command: str
    param: click.Parameter

    @property
    def name(self) -> str:
        return f"{self.command} {self.option or self.param.name}"

    @property
    def option(self) -> str | None:
        return long_name(self.param) if isinstance(self.param, click.Option) else None

    @property
    def written(self) -> bool:
        return isinstance(self.param.type, OutputPath)

    def with_path(self, path: str) -> list[str]:
        """The command's words with this path at the place, and something valid at every other that is required."""
        words = [self.command]
        alone = ALONE.get(self.command, {}).get(self.option or "")
        for param in COMMANDS[self.command].params:
            if param is self.param:
                words += [path] if self.option is None else [self.option, path]
            elif isinstance(param, click.Argument) and param.required and alone is None:
                words.append(VALUES[metavar(param)])
        if self.written:
            words += [word for word in WHILE.get(self.command, ()) if word not in words]
        return [*words, *(EXTRA.get(self.command, ()) if alone is None else alone)]


def metavar(param: click.Parameter) -> str:
    return (param.metavar or str(param.name).upper()).strip("[].").split("]")[0]


def is_path(param: click.Parameter) -> bool:
    words = metavar(param).startswith(("DIR", "SOURCE")) and isinstance(param, click.Argument)
    return words or isinstance(param.type, click.Path) or "--site" in param.opts


COMMANDS = commands()
PLACES = [Place(name, param) for name, command in COMMANDS.items() for param in command.params if is_path(param)]
READ, WRITTEN = [p for p in PLACES if not p.written], [p for p in PLACES if p.written]


def ids(place: Place) -> str:
    return place.name


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a grid, a sweep that has results, and files of every wrong kind."""
    root = tmp_path_factory.mktemp("edges")
    (root / "grid.yaml").write_text(GRID)
    (root / "table.csv").write_text("model,sequence_length,nodes,tokens_per_second_per_gpu\n1B,64,1,100\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)  # an exported command is relative to where its sweep was launched
        sweep = measured(root / "s")
    assert [done.returncode for done in run_all(root, [["collect", "s"], ["archive", "s"]])] == [0, 0]
    (root / "Megatron-LM").mkdir()  # a checkout: an exported command has to exist
    (root / "Megatron-LM" / "pretrain_gpt.py").touch()
    (root / "binary").write_bytes(bytes(range(256)) * 4)
    (root / "empty").touch()
    (root / "empty.parquet").touch()
    pq.write_table(pa.table({"user": ["x"], "token": [SECRET]}), root / "foreign.parquet")
    pq.write_table(pa.table({"model": [SECRET], "nodes": ["many"], "outcome": [1.5]}), root / "wrong.parquet")
    whole = bytearray((root / "s" / "results.parquet").read_bytes())
    whole[len(whole) // 2 : -8] = bytes(len(whole) - 8 - len(whole) // 2)  # its footer is zeros; the marks are there
    (root / "damaged.parquet").write_bytes(whole)
    shutil.copy(sweep.directory.plan, root / "plan.parquet")
    os.mkfifo(root / "pipe")
    (root / "unreadable").write_text(GRID)
    (root / "unreadable").chmod(0)
    (root / "closed").mkdir(mode=0)
    (root / "read_only").mkdir(mode=0o500)
    (root / "directory").mkdir()
    (root / "file").write_text(f"password: {SECRET}\n")
    (root / "secret.yaml").write_text(f"token: {SECRET}\nname: {SECRET}!\nnested: [{SECRET}, {{env: {SECRET}}}]\n")
    (root / "secret.txt").write_text(f"first {SECRET}\nsecond line {SECRET}: [{SECRET}\n*{SECRET} 'x\n")
    (root / "secret.csv").write_text(f"{SECRET},b\n1,{SECRET}\n{SECRET}\n")
    return root


Done = subprocess.CompletedProcess[str]


def run_all(root: Path, lines: Sequence[Sequence[str]]) -> list[Done]:
    """Each command line as a user whom file modes stop, also where the tests are root's."""
    found = [server().run(list(words), os.environ, root, 60) for words in lines]
    assert None not in found, "this server runs one command after the other, each with its own variables"
    return [done for done in found if done]


@functools.cache
def server() -> Server:
    drop = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]
    return Server(*(drop if os.geteuid() == 0 else ()))


def assert_refused(done: Done, words: Sequence[str]) -> None:
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2, (words, done.returncode, done.stdout, done.stderr)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("sweep: ")]
    assert lines, words
    assert all(line.startswith("error: ") for line in lines), lines
    assert not [word for word in ("pyarrow", "Arrow", "Errno", "__", "<class") if word in done.stderr], done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert max(map(len, lines)) < 900


def test_every_command_is_of_the_class_that_checks_options_and_files() -> None:
    assert {"plan", "launch", "best"} <= set(COMMANDS)
    other = [name for name, command in COMMANDS.items() if not isinstance(command, SweepCommand)]
    assert not other, f"declare them with cls=SweepCommand: {other}"
    plain = [p.name for p in PLACES if type(p.param.type) is click.Path]
    assert not plain, f"declare their paths as InputPath or OutputPath: {plain}"
    assert {type(p.param.type) for p in PLACES} >= {InputPath, OutputPath}


WRONG = ("missing", "unreadable", "closed", TOO_LONG, "binary", "empty", "empty.parquet", "foreign.parquet",
         "wrong.parquet", "damaged.parquet", "plan.parquet", "directory", "file", "secret.yaml", "secret.txt",
         "secret.csv", "grid.yaml/below", "/dev/zero", "pipe")  # fmt: skip


TEXTS = ("file", "secret.yaml", "secret.txt", "secret.csv")


def reading(place: Place) -> list[list[str]]:
    return [place.with_path(path) for path in WRONG]


def writing(place: Place) -> list[list[str]]:
    suffix = suffix_of(place)
    in_the_way = "file" if not suffix else "directory"
    paths = (f"read_only/new{suffix}", f"closed/x{suffix}", TOO_LONG + suffix, f"file/x{suffix}", in_the_way, "pipe")
    return [place.with_path(path) for path in paths]


@pytest.fixture(scope="module")
def answers(here: Path) -> dict[tuple[str, ...], Done]:
    """What every command says of every wrong path; nothing of the directory has changed."""
    lines = [words for place in READ for words in reading(place)]
    lines += [words for place in WRITTEN for words in writing(place)]
    before = tree(here)
    found = run_all(here, lines)
    assert tree(here) == before
    return dict(zip(map(tuple, lines), found, strict=True))


@pytest.mark.parametrize("place", READ, ids=ids)
def test_what_cannot_be_read_is_refused_with_one_message(answers: dict[tuple[str, ...], Done], place: Place) -> None:
    for words in reading(place):
        done = answers[tuple(words)]
        if place.option == "--log" and words[-1] in TEXTS:
            assert (done.returncode, SECRET in done.stdout + done.stderr) == (0, False), done  # any text may be a log
        else:
            assert_refused(done, words)


@pytest.mark.parametrize("place", WRITTEN, ids=ids)
def test_what_cannot_be_written_is_refused(answers: dict[tuple[str, ...], Done], place: Place) -> None:
    for words in writing(place):
        assert_refused(answers[tuple(words)], words)


def suffix_of(place: Place) -> str:
    if isinstance(place.param.type, OutputPath) and place.param.type.directory:
        return ""
    return ".parquet" if place.command == "import" else ".png"


def wrong_options(command: click.Command) -> list[str]:
    """The command's options that take a number or a name, each with a value that is none."""
    words: list[str] = []
    for option in command.params:
        kind = option.type
        free = isinstance(kind, (click.Path, click.types.StringParamType))
        if isinstance(option, click.Option) and not option.is_flag and not option.hidden and not free:
            words += [long_name(option), "nan"]  # a number for Python, and no name
    return words


def test_all_wrong_options_of_every_command_are_reported_at_once(here: Path) -> None:
    before = tree(here)
    given = {name: wrong for name, command in COMMANDS.items() if len(wrong := wrong_options(command)) > 2}
    assert len(given) >= 6
    lines = [[*plainly(name), *wrong] for name, wrong in given.items()]
    for wrong, done in zip(given.values(), run_all(here, lines), strict=True):
        assert_refused(done, wrong)
        assert [option for option in wrong[::2] if f"error: {option}: " not in done.stderr] == []
    assert tree(here) == before


def test_a_mistyped_option_or_command_gets_the_nearest(here: Path) -> None:
    """Every command, and every option of every command that no other resembles."""
    names = {name: long_name(option) for name, command in COMMANDS.items() for option in named_options(command)[:1]}
    lines = [[f"{name}x"] for name in names] + [[name, f"{option}x"] for name, option in names.items()]
    expected = [*names, *names.values()]
    for name, words, done in zip(expected, lines, run_all(here, lines), strict=True):
        assert_refused(done, words)
        assert re.search(rf"did you mean .*{name}", done.stderr), (words, done.stderr)


def named_options(command: click.Command) -> list[click.Option]:
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden and len(p.opts[0]) > 4]


def test_a_full_file_system_is_reported_and_left_as_it_was(here: Path, full_mount: Callable[[str], Path]) -> None:
    fill(full := full_mount("64k"))
    before = tree(full)
    lines = [place.with_path(str(full / "new" / f"x{suffix_of(place)}")) for place in WRITTEN]
    for words, done in zip(lines, run_all(here, lines), strict=True):
        assert_refused(done, words)
        assert "no space left" in done.stderr
        assert str(full) in done.stderr
    assert tree(full) == before


def test_an_archive_that_cannot_be_opened_leaves_no_directory(here: Path, full_mount: Callable[[str], Path]) -> None:
    """There is room for one directory, the one above the copy, and not for the copy."""
    small = full_mount("64k,nr_inodes=2")
    words = ["archive", "s.tar.zst", "--open", "--out", str(small / "above" / "copy")]
    (done,) = run_all(here, [words])
    assert_refused(done, words)
    assert f"error: {small / 'above' / 'copy'}: no space left on device" in done.stderr
    assert list(small.iterdir()) == []


DAMAGED = {"plan": "plan.parquet", "origin": "provenance.json", "grid": "grid.yaml"}


@pytest.mark.parametrize("kind", ["plan", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("origin", "grid"))])
def test_no_command_fails_on_a_damaged_sweep_with_a_traceback_or_its_content(
    here: Path, tmp_path: Path, kind: str
) -> None:
    copy_inputs(here, tmp_path)
    if kind == "plan":
        shutil.copy(here / "foreign.parquet", tmp_path / "s" / DAMAGED[kind])
    else:
        (tmp_path / "s" / DAMAGED[kind]).write_text(f'{{"a": ["{SECRET}')
    names = [name for name in COMMANDS if name not in ("demo", "track") and "s" in plainly(name)]
    assert len(names) >= 15
    lines = [plainly(name) for name in names]
    for words, done in zip(lines, run_all(tmp_path, lines), strict=True):
        assert "Traceback" not in done.stderr, (words, done.stderr)
        assert SECRET not in done.stdout + done.stderr, words
        assert done.returncode in (0, 1, 2), (words, done)


@pytest.mark.parametrize(("kind", "message"), [
    ("full", "no space left"), ("read-only", "read-only file system"),
    pytest.param("closed", "permission denied", marks=pytest.mark.long),
])  # fmt: skip
def test_every_command_where_nothing_can_be_written_reports_it_and_changes_nothing(
    here: Path, tmp_path: Path, kind: str, message: str, full_mount: Callable[[str], Path]
) -> None:
    """Its directory and its sweep are on a mount without a free byte or read-only, or their modes allow no writing."""
    root = tmp_path if kind == "closed" else full_mount("1m" if kind == "full" else "4m")
    copy_inputs(here, root)
    if kind == "full":
        fill(root)
    elif kind == "read-only":
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
    else:
        for path in [root, *root.rglob("*")]:
            path.chmod(path.stat().st_mode & ~0o222)
    before = contents(root)
    left_out = ("demo", "logs")  # demo is a launch; logs prints a file or says that there is none
    names = [name for name in COMMANDS if name not in left_out]
    reading = ONLY_READS if kind == "full" else ONLY_READS | READS_A_CLOSED_SWEEP
    lines = [["new" if (name, word) == ("init", "s") else word for word in plainly(name)] for name in names]
    for name, words, done in zip(names, lines, run_all(root, lines), strict=True):
        if name in reading:
            assert done.returncode == 0, (words, done.stderr)
            assert "Traceback" not in done.stderr
        else:
            assert_refused(done, words)
            assert message in done.stderr, (words, done.stderr)
    assert contents(root) == before


def plainly(name: str) -> list[str]:
    """The command's words as a user gives them: everything required, and the sweep where one may be named."""
    arguments = [param for param in COMMANDS[name].params if isinstance(param, click.Argument)]
    meant = [metavar(param) for param in arguments if param.required or metavar(param).startswith(("DIR", "SOURCE"))]
    words = [name, *(VALUES.get(each, "s") for each in meant)]
    more = [*REST[name]] if name in REST else [*EXTRA.get(name, ())]
    return [*words, *(word for word in more if word not in words)]


REST = {"doctor": ("--executor", "local", "--dir", "new"),
        "explain": ("n1-dp2-tp1-pp1-mbs1",), "logs": ("n1-dp2-tp1-pp1-mbs1",), "rerun": ("--outcome", "ok"),
        "size": ("--from", "s", "--tokens", "1T", "--gpus", "8", "--model", "tiny-1M")}  # fmt: skip
"""the rest of a command that does something"""
READS_A_CLOSED_SWEEP = {"best", "compare", "size"}
"""commands that keep new records elsewhere for as long as they run; further ones write a result here"""
ONLY_READS = {"plan", "cancel", "status", "explain", "memory"}
"""commands that need no space here: the sweep is finished. All others write, if only the
new records of the sweep"""


def copy_inputs(here: Path, path: Path) -> None:
    """A grid, a table, an archive, and a sweep whose records are to be collected."""
    for name in ("grid.yaml", "table.csv", "s", "s.tar.zst"):
        source = here / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, path / name)
    adopt(SweepDir(path / "s"))
    (path / "s" / "results.parquet").unlink()


def contents(path: Path) -> dict[str, bytes | None]:
    """Every file and directory. Not times: a directory in which a file could not be written has another."""
    return {str(p.relative_to(path)): p.read_bytes() if p.is_file() else None for p in sorted(path.rglob("*"))}
