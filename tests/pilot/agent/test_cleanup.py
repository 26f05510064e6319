"""Files that an attempt leaks on its node: which are removed, which are not."""

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sweep.pilot.agent.cleanup import TEMPORARY_PREFIX, empty, make_temporary, remove_scratch, remove_shared_memory


def test_shared_memory_of_the_attempt_is_removed_and_all_else_stays(tmp_path):
    old = tmp_path / "torch_1_old"
    old.touch()
    os.utime(old, (1, 1))
    began = time.time() - 0.05
    for name in ("nccl-a1b2c3", "torch_77_1_0", "sem.mp-x", "another_program"):
        (tmp_path / name).touch()
    held = tmp_path / "nccl-held"
    with held.open("wb"):
        removed = remove_shared_memory(began, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert {"nccl-a1b2c3", "torch_77_1_0", "sem.mp-x"} <= set(removed)
    assert {"another_program", "nccl-held", "torch_1_old"} <= left


def test_a_file_that_a_process_maps_is_not_removed(tmp_path):
    program = (
        "import mmap,os,sys; m=mmap.mmap(os.open(sys.argv[1],2),0); os.closerange(3,99); print(1,flush=True); input()"
    )
    path = tmp_path / "nccl-mapped"
    path.write_bytes(b"0" * 4096)
    child = subprocess.Popen([sys.executable, "-c", program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    assert remove_shared_memory(0.0, tmp_path) == []
    child.communicate(b"\n")
    assert remove_shared_memory(0.0, tmp_path) == ["nccl-mapped"]


def test_the_temporary_directory_is_removed_with_the_scratch(tmp_path):
    scratch = tmp_path / "token.n1.x"
    scratch.mkdir()
    temporary, _ = make_temporary(scratch)
    (temporary / "deep").mkdir()
    (temporary / "deep" / "file").touch()
    (temporary / "link").symlink_to(tmp_path)
    empty(temporary)
    assert list(temporary.iterdir()) == []
    assert tmp_path.exists()
    remove_scratch(scratch)
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_is_not_ours_is_not_followed(tmp_path):
    for precious in (tmp_path / "precious", tmp_path / "elsewhere" / f"{TEMPORARY_PREFIX}x"):
        precious.mkdir(parents=True)
        scratch = tmp_path / "token.n1.x"
        scratch.mkdir()
        (scratch / "tmp").symlink_to(precious)
        remove_scratch(scratch)
        assert precious.exists()


AGENT = """
import sys
from pathlib import Path
from sweep.pilot.agent.cleanup import make_temporary
scratch = Path(sys.argv[1])
scratch.mkdir()
print(make_temporary(scratch)[0], flush=True)
input()
"""


def an_agent(scratch: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a temporary directory, with its path."""
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, scratch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return agent, Path(agent.stdout.readline().strip())


def test_what_a_killed_agent_left_is_removed_by_the_next_and_what_a_living_one_holds_is_not(tmp_path):
    living, held = an_agent(tmp_path / "other.n1.x")
    killed, left = an_agent(tmp_path / "token.n1.x")
    shutil.rmtree(tmp_path / "token.n1.x")  # as a cleaner of /tmp does: no pilot finds the directory by its link
    (left / "file").touch()
    killed.kill()
    killed.wait()
    of_an_old_version, of_another_host = tmp_path / "sweep-tmp.3er5i3mz", tmp_path / "sweep-tmp.0a0b0c0d.3er5i3mz"
    of_an_old_version.mkdir()
    of_another_host.mkdir()
    (tmp_path / "next.n1.x").mkdir()
    mine, _ = make_temporary(tmp_path / "next.n1.x")
    temporary = {path for path in tmp_path.iterdir() if path.name.startswith("sweep-tmp.")}
    assert temporary == {held, mine, of_an_old_version, of_another_host}
    living.communicate("\n")


def makes_and_leaves(parent: str) -> list[str]:
    """What goes wrong as agents start, one after another, each of which ends at once."""
    errors = []
    for _ in range(100):
        try:
            os.close(make_temporary(Path(tempfile.mkdtemp(prefix="token.", dir=parent)))[1])
        except OSError as error:
            errors.append(repr(error))
    return errors


def test_no_agent_fails_while_others_remove_what_is_not_locked_yet(tmp_path):
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert pool.map(makes_and_leaves, [str(tmp_path)] * 8, chunksize=1) == [[]] * 8
