"""The pilot's script: whole scripts against goldens, and bash itself to check the quoting.

A golden is updated by ``SWEEP_UPDATE_GOLDENS=1 pytest tests/executors/test_script.py``, and only so.
"""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
import yaml

from sweep.errors import SweepError
from sweep.executors.executor import PilotRequest
from sweep.executors.script import render_pilot, sbatch_quote, segment_option, slurm_path, warning_s
from sweep.inputs.site import Site
from sweep.stated import shell_word
from tests.support.refusals import mistakes_of

GOLDEN = Path(__file__).parent / "golden"
SEGMENTS = yaml.safe_load(Path(__file__).with_name("segments.yaml").read_text())
SITES = {
    name: (Site(**given["site"]), PilotRequest(**given["request"]))
    for name, given in yaml.safe_load((GOLDEN / "sites.yaml").read_text()).items()
}
HOSTILE = SITES["hostile"][0].env.values()


def rendered(site: Site, request: PilotRequest, **changes: Any) -> str:
    folder = "/shared/my sweep/pilots/p"
    values = {"folder": folder, "command": f"/venv/bin/python -u -m submitit.core._submit '{folder}'"}
    return render_pilot(site, request, **{**values, **changes})


@pytest.mark.parametrize("asked", SEGMENTS, ids=str)
def test_segments_are_asked_for_as_the_topology_plug_in_takes_them(asked: dict[str, Any]) -> None:
    words = [asked[name] for name in ("segment", "nodes", "plugin", "version")]
    if "options" in asked:
        assert segment_option(*words) == asked["options"]
    else:
        with pytest.raises(SweepError, match=asked["refused"]) as error:
            segment_option(*words)
        assert "site.segment" in str(error.value)


@pytest.mark.parametrize("name", SITES)
def test_golden(name: str) -> None:
    text = rendered(*SITES[name], before=['cp a b/"$SLURM_JOB_ID"'])
    file = GOLDEN / f"{name}.sbatch"
    if os.environ.get("SWEEP_UPDATE_GOLDENS") == "1":
        file.write_text(text)
    assert file.exists(), f"no golden {file}; read the script, then run with SWEEP_UPDATE_GOLDENS=1"
    assert text == file.read_text()


@pytest.mark.parametrize("value", HOSTILE)
def test_bash_reads_back_what_was_given(value: str, tmp_path: Path) -> None:
    """The whole script is run; the command prints what reached its environment and arguments."""
    site = Site(gpus_per_node=1, gpu="cpu", env={"VALUE": value})
    request = PilotRequest(token=value or "t", name="p", nodes=1, time_limit_s=60)
    command = "python3 -c " + shell_word("import os; print(repr([os.environ[k] for k in ('VALUE', 'SWEEP_PILOT')]))")
    done = subprocess.run(
        ["bash"], input=rendered(site, request, command=command), text=True, capture_output=True, cwd=tmp_path
    )
    assert done.stdout.strip() == repr([value, value or "t"]), done.stderr
    assert not list(tmp_path.iterdir())


def test_slurm_variables_of_the_submitting_shell_are_unset() -> None:
    left = {"SBATCH_PARTITION": "x", "SLURM_MEM_PER_CPU": "1", "SLURM_HINT": "nomultithread", "SRUN_X": "1"}
    retained = {"SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "SLURM_CPUS_ON_NODE": "8", "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["bash"],
        input=rendered(*SITES["cpu-least"], command="env"),
        text=True,
        capture_output=True,
        env={**left, **retained},
    )
    names = {line.split("=")[0] for line in done.stdout.splitlines()}
    assert set(retained) <= names
    assert not set(left) & names
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("changes", "folder"),
    [
        ({"token": "a\rb"}, "/a"),
        ({"exclude": ("n1", "n2\n#SBATCH --uid=0")}, "/a"),
        ({"token": "a\nb"}, "/a\n/pilots/p"),
    ],
)
def test_a_line_break_cannot_become_an_option_and_all_are_reported(changes: dict[str, Any], folder: str) -> None:
    request = PilotRequest(**{"token": "t", "name": "p", "nodes": 1, "time_limit_s": 60, **changes})
    mistakes = mistakes_of(rendered, Site(gpus_per_node=1, gpu="cpu"), request, folder=folder)
    assert len(mistakes) == 1 + ("\n" in folder)
    assert all("cannot be in a batch script" in str(mistake) for mistake in mistakes)


def test_the_template_cannot_use_an_unknown_word() -> None:
    site, request = SITES["cpu-least"]
    without_env = SimpleNamespace(**{name: getattr(site, name) for name in Site.model_fields if name != "env"})
    with pytest.raises(jinja2.UndefinedError, match="env"):
        rendered(without_env, request)


@pytest.mark.parametrize(("limit", "warning"), [(60, 0), (299, 0), (300, 60), (3600, 180), (14_400, 300)])
def test_warning_is_a_part_of_the_time_and_none_for_short_pilots(limit: int, warning: int) -> None:
    assert warning_s(limit) == warning


def test_slurms_own_quoting() -> None:
    """Each form was tried on a real sbatch; see tests/executors/test_slurm.py for a whole path of them."""
    assert sbatch_quote("plain-1.2/x=y") == "plain-1.2/x=y"
    assert sbatch_quote('a "b" \\') == '"a \\"b\\" \\\\"'
    assert slurm_path("/a/%j") == "/a/%%j"
