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

from sweep.errors import SweepError
from sweep.executors.executor import PilotRequest
from sweep.executors.script import render_pilot, sbatch_quote, segment_option, slurm_path, warning_s
from sweep.inputs.site import Site
from sweep.stated import shell_word
from tests.support.refusals import mistakes_of

GOLDEN = Path(__file__).parent / "golden"
SEGMENTS = [
    # segment, nodes, TopologyPlugin, SLURM_VERSION, option or what the refusal says
    (None, 7, "topology/none", "22.05.8", []),
    (16, 32, "topology/block", "25.11.4", ["--segment=16"]),
    (16, 16, "topology/block", "24.05.0", ["--segment=16"]),
    (16, 4, "topology/block", "24.11.1", ["--segment=4"]),  # in one block
    (16, 32, "topology/ring", "26.05.0", ["--segment=16"]),
    (16, 40, "topology/block", "25.11.4", "40 nodes is not made of whole segments of 16"),
    (16, 32, "topology/block", "23.11.10", "Slurm 23.11.10 has no --segment"),
    (9, 36, "topology/tree", "22.05.8", ["--switches=4"]),
    (9, 20, "topology/tree", "25.11.4", ["--switches=3"]),
    (9, 4, "topology/tree", "22.05.8", ["--switches=1"]),
    (9, 18, "topology/none", "24.05.8", "topology/none knows neither segments nor switches"),
    (9, 18, "topology/flat", "25.11.4", "topology/flat knows neither segments nor switches"),
    (9, 18, "topology/3d_torus", "22.05.8", "topology/3d_torus knows neither"),
    (9, 18, "", "", ["--segment=9"]),  # no answer: sbatch will say
]
HOSTILE = [
    '"; rm -rf ~"',
    "'; rm -rf ~ #",
    "$(touch pwned)",
    "`touch pwned`",
    "{{ 7 * 7 }} {% raw %}",
    "back\\slash \\\\ \\'",
    "a  b\t*?[x]~",
    "$HOME ${PATH} !! &|;<>()",
    "naïve ☃",
    "",
]

SITES: dict[str, tuple[Site, PilotRequest]] = {
    "cpu-least": (
        Site(gpus_per_node=4, gpu="cpu"),
        PilotRequest(token="sweep-tiny-0001", name="p0001", nodes=1, time_limit_s=240),
    ),
    "gpu-full": (
        Site(
            name="big",
            gpus_per_node=8,
            gpu="h100",
            partition="hopper-prod,hopper-low",
            account="research@gpu",
            qos="high",
            reservation="bench_week",
            constraint="(h100&ib)|h200",
            nice=100,
            setup=("module purge", "module load cuda/12.8", 'source "$HOME/venvs/torch/bin/activate"'),
            env={"NCCL_SOCKET_IFNAME": "eth0", "HF_HOME": "/scratch/my models"},
            sbatch=("--exclude=bad[1-3]", "--switches=1@5", "--mail-user=me@example.org"),
            python="/opt/python/bin/python3",
        ),
        PilotRequest(
            token="sweep-ultrascale-0007", name="p0007", nodes=64, time_limit_s=100_000, exclude=("n9", "n12")
        ),
    ),
    "own-gres": (
        Site(gpus_per_node=4, gpu="a100", sbatch=("--gres=gpu:a100:4",)),
        PilotRequest(token="t", name="p", nodes=2, time_limit_s=3600),
    ),
    "hostile": (
        Site(
            gpus_per_node=1,
            gpu="cpu",
            reservation=None,
            setup=("echo '{{ site }}' {% if %}", "printf '%s' \"$(date)\""),
            env={f"H{number}": text for number, text in enumerate(HOSTILE)},
        ),
        PilotRequest(token='"; rm -rf ~" $(x) {{ }} \\', name="p", nodes=1, time_limit_s=60),
    ),
}


def rendered(site: Site, request: PilotRequest, **changes: Any) -> str:
    folder = "/shared/my sweep/pilots/p"
    values = {"folder": folder, "command": f"/venv/bin/python -u -m submitit.core._submit '{folder}'"}
    return render_pilot(site, request, **{**values, **changes})


@pytest.mark.parametrize(("segment", "nodes", "plugin", "version", "expected"), SEGMENTS)
def test_segments_are_asked_for_as_the_topology_plug_in_takes_them(segment, nodes, plugin, version, expected):
    if isinstance(expected, list):
        assert segment_option(segment, nodes, plugin, version) == expected
    else:
        with pytest.raises(SweepError, match=expected) as error:
            segment_option(segment, nodes, plugin, version)
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
