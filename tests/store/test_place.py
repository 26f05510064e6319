"""A sweep directory by other names and moved is the same sweep; a copy of it is another one, which is for reading."""

import errno
import os
import shutil
import subprocess

import pytest

from sweep.errors import SweepError
from sweep.store.directory import SweepDir
from sweep.store.place import Removal, adopt, check_own
from sweep.store.sweep import open_sweep
from tests.support.made_sweeps import made, tree
from tests.support.mounts import mounted

COPIES = (("cp", "-r"), ("cp", "-a"), ("cp", "-al"))


@pytest.fixture
def original(tmp_path):
    return made(tmp_path / "s").directory.path


def copy(path, to, *command):
    subprocess.run([*(command or COPIES[0]), path, to], check=True)
    return to


def is_own(path):
    try:
        check_own(SweepDir(path))
    except SweepError:
        return False
    return True


def test_the_same_directory_by_another_path_or_mount_is_the_sweep(original, tmp_path):
    (tmp_path / "link").symlink_to(original)
    assert is_own(tmp_path / "link")
    with mounted(tmp_path / "mount", "--bind", str(original)) as mount:
        assert is_own(mount)
    assert is_own(original)


@pytest.mark.parametrize("command", COPIES, ids=" ".join)
def test_a_copy_is_not_the_sweep_even_where_the_original_is_gone(original, tmp_path, command):
    copied = copy(original, tmp_path / "copy", *command)
    assert (is_own(original), is_own(copied)) == (True, False)
    shutil.rmtree(original)
    before = tree(copied)
    assert not is_own(copied)
    assert tree(copied) == before


def test_a_copy_on_another_file_system_is_not_the_sweep(original, tmp_path):
    with mounted(tmp_path / "disk", "-t", "tmpfs", "none") as disk:
        shutil.move(original, disk / "s")
        assert not is_own(disk / "s")


def test_a_backup_that_is_restored_in_its_place_is_the_sweep(original, tmp_path):
    backup = copy(original, tmp_path / "backup")
    shutil.rmtree(original)
    assert is_own(copy(backup, original))


def test_a_directory_that_was_moved_is_the_sweep_and_a_copy_or_another_in_its_old_place_is_not(original, tmp_path):
    moved = original.rename(tmp_path / "moved")
    assert is_own(moved)
    copied = copy(moved, original)
    assert (is_own(moved), is_own(copied)) == (True, False)
    shutil.rmtree(original)
    made(original)
    assert (is_own(moved), is_own(original)) == (True, True)


def test_an_adopted_copy_is_a_sweep_of_its_own(original, tmp_path):
    copied = copy(original, tmp_path / "copy")
    adopt(SweepDir(copied))
    adopted, first = open_sweep(copied), open_sweep(original)
    assert (is_own(copied), is_own(original)) == (True, True)
    assert adopted.copy_of == first.sweep_id != adopted.sweep_id
    assert not is_own(copy(copied, tmp_path / "second"))


def test_the_original_is_not_changed_by_adoption(original):
    before, content = tree(original), open_sweep(original).sweep_id
    adopt(SweepDir(original))
    assert (tree(original), open_sweep(original).sweep_id) == (before, content)


def test_a_directory_that_is_missing_at_first_and_then_cannot_be_asked_for_is_waited_for(tmp_path, monkeypatch):
    """Such as a file server that fails over: no such file, a moment later a stale handle."""
    removal, stat = Removal(tmp_path / "away", "pilot"), os.stat

    def stale(path, **how):
        if str(path) == str(tmp_path / "away"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", stale)
    removal.check(FileNotFoundError(errno.ENOENT, "No such file or directory"))
