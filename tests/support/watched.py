"""A `sweep` command, and which files it opened and changed and what it started, by Python's audit events."""

import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "SWEEP_TESTS_WATCHED"
"""the file that a command forked by ``tests.support.prepared`` notes its events in"""
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.chdir")
CHANGES = ("os.rename", "os.remove", "os.link", "os.symlink", "os.mkdir", "os.rmdir", "os.chmod", "os.truncate")
MEMORY_BYTES = 3 << 30


@dataclass
class Watched:
    """What a command did."""

    code: int
    out: str
    err: str
    read: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)


def watched(*words: object, cwd: Path) -> Watched:
    """The command to its end, with at most 3 GiB of address space."""
    from tests.support import driving

    with tempfile.NamedTemporaryFile() as seen:
        done: subprocess.CompletedProcess[str] = driving.run(*words, cwd=cwd, env={VARIABLE: seen.name})
        found = Watched(done.returncode, done.stdout, done.stderr)
        lines = seen.read().splitlines()
    assert lines, "it was started again, without being watched"
    for line in lines:
        kind, text = json.loads(line)
        getattr(found, kind).append(text)
    return found


def watch(place: str) -> None:
    """From now on this process notes its events there."""
    seen = os.open(place, os.O_WRONLY | os.O_APPEND)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.addaudithook(lambda event, args: _note(event, args, seen))
    Path(os.devnull).read_bytes()


def _note(event: str, args: tuple[object, ...], seen: int) -> None:
    found: list[tuple[str, object]] = []
    if event == "open":
        writes = isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        found = [("changed" if writes else "read", args[0])]
    elif event in CHANGES:
        found = [("changed", one) for one in args[:2]]
    elif event in STARTS:
        os.write(seen, json.dumps(["started", f"{event} {args[:2]}"]).encode() + b"\n")
    for kind, path in found:
        if isinstance(path, str | bytes | os.PathLike):
            place = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 (links stay)
            os.write(seen, json.dumps([kind, place]).encode() + b"\n")
