"""Who else may read a sweep, and that no one else continues or changes it: tried as other Unix users."""

import grp
import os
import pwd
import shutil
import stat
import tempfile
from pathlib import Path

import pytest

from sweep.errors import SweepError
from sweep.inputs.load import parse_grid
from sweep.store.create import keep_private
from sweep.store.directory import SweepDir
from sweep.store.place import check_own
from tests.support import driving
from tests.support.made_sweeps import GRID, made, measured, tree
from tests.support.paths import REPOSITORY

as_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(folder.stat().st_mode & stat.S_IXOTH for folder in (REPOSITORY, *REPOSITORY.parents)),
    reason="only root can act as other users, in a checkout that they can reach",
)
SITE = "site: {gpu: cpu, gpus_per_node: 2, max_local_ranks: 8"
READING = (
    *("status DIR", "best DIR", "best DIR --format csv", "heatmap DIR", "compare DIR DIR", "nodes DIR"),
    *("explain DIR RUN", "plan DIR/grid.yaml --from DIR", "archive DIR --out a.tar.zst"),
)
CHANGING = (
    *("resume DIR", "resume DIR --takeover", "resume DIR --detach", "cancel DIR", "rerun DIR RUN", "collect DIR"),
    *("nodes DIR exclude n7", "launch DIR/grid.yaml --dir DIR --executor local --yes"),
    "launch DIR/grid.yaml -o iterations=9 --dir DIR --add --yes",
)


@pytest.fixture
def folder():
    """Reachable by every user, as a user's temporary directory is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def shared(directory, keys="umask: '0022'"):
    """A sweep of two runs that have ended, with that in its site."""
    return measured(directory, GRID.replace("nodes: [1, 2]", "nodes: [1]").replace(SITE, f"{SITE}, {keys}"))


def give(path, user):
    """Its files and folders become another user's."""
    found = pwd.getpwnam(user)
    for entry in (path, *path.rglob("*")):
        os.chown(entry, found.pw_uid, found.pw_gid)


def run_as(user, command, sweep, cwd):
    words = command.replace("DIR", str(sweep.directory.path)).replace("RUN", sweep.runs[0].run_id).split()
    return driving.run(*words, cwd=cwd, user=user, env={"HOME": str(cwd)})


@as_root
@pytest.mark.parametrize(("owner", "user"), [("root", "bin"), ("daemon", None)])
def test_another_user_reads_a_shared_sweep_and_leaves_nothing_in_it(folder, owner, user):
    """None is root."""
    sweep, theirs = shared(folder / "s"), folder / "theirs"
    give(folder / "s", owner)
    theirs.mkdir()
    shutil.chown(theirs, user or "root")
    before = tree(folder / "s")
    for command in READING:
        done = run_as(user, command, sweep, theirs)
        assert done.returncode == 0, (command, done.stderr)
    assert sorted(path.name for path in theirs.iterdir()) == ["a.tar.zst", "heatmap.png"]
    assert tree(folder / "s") == before


@as_root
@pytest.mark.parametrize(("owner", "user"), [("root", "bin"), ("daemon", "bin"), ("daemon", None)])
def test_only_its_owner_continues_or_changes_a_sweep(folder, owner, user):
    """None is root: it would run what another user wrote."""
    sweep = shared(folder / "s")
    give(folder / "s", owner)
    before = tree(folder)
    for command in CHANGING:
        done = run_as(user, command, sweep, folder)
        assert done.returncode == 2, (command, done.stdout)
        assert f"{folder / 's'}: belongs to {owner}, and you are {user or 'root'}" in done.stderr, command
        assert (f"run it as {owner}" if user is None else f"ask {owner}") in done.stderr
    assert tree(folder) == before


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize(
    "entry",
    [".", "site.yaml", "grid.yaml", "plan.parquet", "journal", "journal/pilot-p0001.jsonl", "claims", "logs", "linked"],
)
def test_a_sweep_that_others_can_change_is_refused_until_they_cannot(tmp_path, entry, mode):
    sweep = shared(tmp_path / "s")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s" / "linked").symlink_to(tmp_path / "elsewhere")
    path = tmp_path / "s" / entry
    path.chmod(path.stat().st_mode | mode)
    before = tree(tmp_path)
    with pytest.raises(SweepError, match=f"others can change this sweep: {path} has mode 0.*chmod -R go-w"):
        check_own(sweep.directory)
    for command in ("nodes DIR exclude n7", "cancel DIR", "rerun DIR RUN", "resume DIR") if entry == "." else ():
        assert "others can change this sweep" in run_as(None, command, sweep, tmp_path).stderr, command
    assert tree(tmp_path) == before
    path.chmod(path.stat().st_mode & ~mode)
    check_own(sweep.directory)


def test_in_a_sweep_that_others_cannot_enter_they_can_change_only_what_a_link_leads_to(tmp_path):
    """With a default ACL for a group above it, as project directories have, Slurm makes a job's output writable."""
    sweep, outside = shared(tmp_path / "s", "umask: '0077'"), tmp_path / "elsewhere"
    (tmp_path / "s" / "pilots" / "p0001" / "stdout").touch()
    (tmp_path / "s" / "pilots" / "p0001" / "stdout").chmod(0o660)
    check_own(sweep.directory)
    outside.mkdir()
    (outside / "site.yaml").touch()
    (outside / "site.yaml").chmod(0o660)
    (tmp_path / "s" / "linked").symlink_to(outside)
    with pytest.raises(SweepError, match=r"linked/site\.yaml has mode 0660"):
        check_own(sweep.directory)


@as_root
def test_a_sweep_to_which_another_user_has_written_is_refused(tmp_path):
    sweep = shared(tmp_path / "s")
    strange = sweep.directory.journal("rerun-1")
    strange.touch(0o644)
    shutil.chown(strange, "bin")
    with pytest.raises(SweepError, match=f"others have written to this sweep: {strange} belongs to bin"):
        check_own(sweep.directory)


def test_the_files_of_attempts_are_not_looked_at_one_by_one(tmp_path, monkeypatch):
    """There are tens of thousands, each a request to a file server. Their folders are judged: see the test above."""
    sweep, listed = shared(tmp_path / "s"), []
    (sweep.directory.path / "logs" / "x.1.log").touch()
    scandir = os.scandir
    monkeypatch.setattr("sweep.store.sharing.os.scandir", lambda path: listed.append(Path(path).name) or scandir(path))
    check_own(sweep.directory)
    assert set(listed) >= {"s", "journal", "pilots", "leases"}
    assert not {"claims", "logs"} & set(listed)


@as_root
def test_what_root_left_in_a_users_sweep_is_no_reason(folder):
    sweep = shared(folder / "s")
    give(folder / "s", "bin")
    (folder / "s" / "results.parquet").write_text("by root")
    assert run_as("bin", "nodes DIR exclude n7", sweep, folder).returncode == 0


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o2775])
def test_who_may_write_to_the_directory_above_is_no_reason(tmp_path, mode):
    sweep = shared(tmp_path / "s")
    tmp_path.chmod(mode)
    check_own(sweep.directory)


@as_root
def test_a_link_to_a_sweep_is_judged_by_where_it_leads(tmp_path):
    for owner in ("root", "bin"):
        shared(tmp_path / owner)
        give(tmp_path / owner, owner)
        (tmp_path / f"to-{owner}").symlink_to(tmp_path / owner)
        os.chown(tmp_path / f"to-{owner}", pwd.getpwnam("daemon").pw_uid, -1, follow_symlinks=False)
    check_own(SweepDir(tmp_path / "to-root"))
    with pytest.raises(SweepError, match="belongs to bin"):
        check_own(SweepDir(tmp_path / "to-bin"))


def test_where_the_file_system_maps_users_the_owner_is_whom_new_files_belong_to(tmp_path, monkeypatch):
    """As NFS does root's with root_squash, and others' with all_squash."""
    sweep = shared(tmp_path / "s")
    monkeypatch.setattr("sweep.store.sharing.os.geteuid", lambda: 4711)
    check_own(sweep.directory)


@as_root
def test_a_named_group_reads_a_sweep_and_others_do_not(folder):
    """Also what is written later, in directories made later."""
    sweep = shared(folder / "s", "group: daemon")
    driving.succeeds("collect", folder / "s")
    entries = [folder / "s", *(path for path in (folder / "s").rglob("*") if path.parent.name != "pilots")]
    assert {entry.stat().st_gid for entry in entries} == {grp.getgrnam("daemon").gr_gid}
    modes = {stat.S_IMODE(entry.stat().st_mode) for entry in entries}
    assert modes == {0o2750, 0o640}
    assert run_as("daemon", "best DIR", sweep, folder).returncode == 0
    assert "is not readable" in run_as("bin", "best DIR", sweep, folder).stderr


@as_root
@pytest.mark.parametrize(
    ("group", "words"),
    [("daemon", "bin is not in the group 'daemon'"), ("no-such-group", "this machine has no group 'no-such-group'")],
)
def test_a_group_that_the_user_is_not_in_is_refused_before_anything_is_written(folder, group, words):
    grid = folder / "grid.yaml"
    grid.write_text(GRID.replace(SITE, f"{SITE}, group: {group}"))
    grid.chmod(0o644)
    (folder / "theirs").mkdir()
    shutil.chown(folder / "theirs", "bin")
    for option in ("--yes", "--dry-run"):
        done = driving.run("launch", grid, "--dir", folder / "theirs/s", "--executor", "local", option, user="bin")
        assert done.returncode == 2, done.stdout
        assert words in done.stderr
        assert "name a group that `id` lists" in done.stderr
    assert list((folder / "theirs").iterdir()) == []


@pytest.mark.parametrize("umask", ["'0000'", "'0002'", "'0020'", "'0007'", "0022", "0o22", "0", "22"])
def test_a_umask_gives_reading_and_never_writing(umask):
    with pytest.raises(SweepError, match=r"grid\.yaml:10: .*umask: .*'0022'"):
        parse_grid(GRID.replace(SITE, f"{SITE}, umask: {umask}"), "grid.yaml")


KNOWN = "hf_" + "Zz09" * 8
SECRET = "env: {WANDB_API_KEY: grid-4712-secret}\n"


@pytest.mark.parametrize("place", ["grid", "site", "comment"])
def test_a_sweep_that_holds_a_secret_is_private_whatever_its_umask_and_the_launch_says_so(tmp_path, place):
    """Also in a directory that was there, and was open."""
    text = GRID.replace(SITE, f"{SITE}, umask: '0022'")
    text = {
        "grid": text + SECRET,
        "site": text.replace(SITE, f"{SITE}, {SECRET.strip()}"),
        "comment": text + f"# {SECRET}",
    }[place]
    (tmp_path / "s").mkdir(0o755)
    sweep = made(tmp_path / "s", text)
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in (tmp_path / "s").rglob("*"))
    note = keep_private(sweep.directory, created=sweep.site)
    assert "only you may read this sweep" in note
    assert "WANDB_API_KEY: <redacted>" in note
    assert {"grid": "grid.yaml: ", "site": "site.yaml: ", "comment": "provenance.json: "}[place] in note
    assert "4712" not in note


def test_the_launch_of_a_sweep_that_stays_private_says_so_once(tmp_path):
    one = GRID.replace("nodes: [1, 2]", "nodes: [1]").replace("micro_batch_size: [1, 2]", "micro_batch_size: [1]")
    done = driving.launched(tmp_path, one.replace(SITE, f"{SITE}, umask: '0022'") + SECRET)
    assert done.stderr.count("only you may read this sweep") == 1
    assert "grid.yaml: WANDB_API_KEY: - <redacted>" in done.stderr


def test_without_a_secret_nothing_is_said_and_with_one_nothing_where_all_is_private(tmp_path):
    for text in (GRID.replace(SITE, f"{SITE}, umask: '0022'"), GRID + SECRET):
        sweep = made(tmp_path / str(len(text)), text)
        assert keep_private(sweep.directory, created=sweep.site) is None


def test_a_secret_that_comes_later_makes_a_shared_sweep_private(tmp_path):
    """By an edited site, and by a grid that is added, here for its time limit."""
    sweep = shared(tmp_path / "s")
    site = sweep.directory.site.read_text()
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o755
    sweep.directory.site.write_text(site.replace("env: {}", SECRET.strip()))
    done = driving.succeeds("resume", tmp_path / "s")
    assert "note: only you may read this sweep" in done.stderr
    assert "site.yaml: env: {WANDB_API_KEY: <redacted>" in done.stderr
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    (tmp_path / "s").chmod(0o755)
    sweep.directory.site.write_text(site)
    (tmp_path / "more.yaml").write_text(f"{sweep.grid.to_yaml()}\nmax_run_time: 100s\n")
    words = ("launch", tmp_path / "more.yaml", "--dir", tmp_path / "s", "--add", "--yes", "-o", f"name={KNOWN}")
    assert "what is added: name: <redacted>" in driving.succeeds(*words).stderr
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
