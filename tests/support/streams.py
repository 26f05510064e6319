"""`sweep` commands on a terminal, or before a pipe that its reader closed: each in a process forked from this one."""

import contextlib
import os
import pty
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn


def on_a_terminal(*words: object, columns: int = 300) -> str:
    """What a terminal gets of a command, with all that is meant for it alone."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(COLUMNS=str(columns), TERM="xterm-256color")
        _become(words)
    shown = b""
    with contextlib.suppress(OSError):  # as a terminal ends: EIO
        while piece := os.read(terminal, 65536):
            shown += piece
    os.close(terminal)
    os.waitpid(pid, 0)
    return shown.decode(errors="surrogateescape")


def before_a_closed_pipe(*words: object, stream: int = 1) -> tuple[int, str]:
    """(exit code, what the other of stdout and stderr got) of a command whose stdout, or stderr, has no reader."""
    read, closed = os.pipe()
    os.close(read)
    read, other = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(closed, stream)
        os.dup2(other, 3 - stream)
        os.closerange(3, 256)
        _become(words)
    os.close(closed)
    os.close(other)
    with os.fdopen(read, errors="replace") as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), text


def _become(words: Sequence[object]) -> NoReturn:
    """As Python starts and ends a program."""
    from sweep.cli.main import main

    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode) for number, mode in enumerate("rww"))
    sys.argv = ["sweep", *map(str, words)]
    code: object = 99
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            code = 120  # as Python ends where it cannot flush
    os._exit(code if isinstance(code, int) else 0)
