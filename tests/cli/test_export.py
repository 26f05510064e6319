"""`sweep best --format`: the winners as tables for other programs, and as trainers take them."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import analysis
from analysis.metrics import memory_text
from bench_workloads.trainers import TRAINERS
from bench_workloads.trainers.adapter import from_here
from sweep.contract import LAYOUT_NUMBERS
from sweep.errors import SweepError
from sweep.library import trainer_format
from sweep.library.winners import layout_text
from sweep.physics.shapes import ModelShape
from sweep.plugins import TRAINER
from sweep.records.collect import write_results
from tests.support import driving
from tests.support.made_records import as_json, made_grid, made_record, made_run
from tests.support.made_sweeps import measured

ROW = "model nodes dp tp pp cp ep zero micro_batch_size grad_accum {} peak_memory_bytes run_id"
NUMBERS = ("nodes", "dp", "tp", "micro_batch_size", "tokens_per_second_per_gpu", "peak_memory_bytes", "repeats")
LLAMA = ModelShape(
    num_layers=16, hidden_size=2048, num_heads=32, num_kv_heads=8, intermediate_size=8192, vocab_size=128256
).stated()


def exported(*arguments, code=0):
    done = driving.run("best", *arguments, *(() if "--format" in arguments else ("--json",)))
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """2 models × 3 node counts, one of them without a measurement of the metric."""
    path = tmp_path_factory.mktemp("made") / "r.parquet"
    made_grid(2, 3, failing=False).to_parquet(path)
    return path


def test_json_has_a_row_per_cell_that_equals_the_best(results):
    rows = json.loads(exported(results, "--format", "json", "--metric", "mfu"))
    best = analysis.best_per_cell(analysis.load(results), "mfu").set_index(["model", "nodes"])
    assert len(rows) == len(best) == 6
    assert all(set(ROW.format("mfu").split()) <= set(row) for row in rows)
    for row in rows:
        of_cell = best.loc[row["model"], row["nodes"]]
        assert row["run_id"] == of_cell["run_id"]
        assert row["mfu"] == pytest.approx(of_cell["value"])
        assert all(isinstance(row[name], int) for name in LAYOUT_NUMBERS)
    assert [(row["model"], row["nodes"]) for row in rows] == [(m, n) for m in ("1B", "4B") for n in (1, 2, 4)]


def test_csv_holds_what_json_holds(results):
    rows = json.loads(exported(results))
    read = list(csv.DictReader(io.StringIO(exported(results, "--format", "csv"))))
    assert [list(row) for row in read] == [list(row) for row in rows]
    for row, line in zip(rows, read, strict=True):
        assert all(float(line[name]) == pytest.approx(row[name], rel=1e-3) for name in NUMBERS)
        assert json.loads(line["params"]) == row["params"]


def test_markdown_is_the_table_of_best(results):
    """It had 34 columns, some of them JSON."""
    rows = json.loads(exported(results))
    text = exported(results, "--format", "markdown")
    head, rule, *lines = [line for line in text.splitlines() if line.startswith("|")]
    names = [cell.strip() for cell in head.strip("|").split("|")]
    same = re.findall(r"^([a-zA-Z ]+): .* \(all\)$", text, re.MULTILINE)
    assert {*names, *same} == {"model", "nodes", "layout", "tokens/s/GPU", "MFU", "memory", "margin", "how sure"}
    assert (names[:4], len(names) + len(same)) == (["model", "nodes", "layout", "tokens/s/GPU"], 8)
    assert set(rule) <= set("| -:")
    for row, line in zip(rows, lines, strict=True):
        cells = dict(zip(names, (cell.strip() for cell in line.strip().strip("|").split("|")), strict=True))
        assert (cells["model"], cells["nodes"], cells["layout"]) == (row["model"], str(row["nodes"]), layout_text(row))
        assert cells["memory"] == memory_text(row["peak_memory_bytes"]), "with its unit"


def test_flags_are_shell_arguments_of_the_layout(results):
    text = exported(results, "--format", "flags", "--model", "4B", "--nodes", "2")
    comment, flags = text.splitlines()
    row = json.loads(exported(results, "--model", "4B", "--nodes", "2"))[0]
    assert comment.startswith("# 4B on 2 nodes of ")
    assert ": tokens_per_second_per_gpu " in comment
    reported = dict(word.removeprefix("--").split("=") for word in shlex.split(flags))
    assert reported.pop("recompute") == "selective"
    assert {name.replace("_", "-"): str(row[name]) for name in LAYOUT_NUMBERS}.items() <= reported.items()
    assert reported["sequence-length"] == str(row["sequence_length"])


def trainer_results(path, **changes):
    run = made_run(model="llama", shape=LLAMA, gpus_per_node=8, sequence_length=2048, nodes=1, dp=8, **changes)
    write_results(path, [made_record(run)])
    return run


def own_trainers():
    return [name for name in TRAINER.names() if name in TRAINERS]


def made_by(name, run, folder):
    """What the adapter makes of the run; one that starts outside its files' directory gets absolute paths."""
    adapter = TRAINER.find(name)
    run = from_here(run, {**adapter.workload.params, **run.params})
    beside = adapter.configure(run, ".", 5)
    return adapter.configure(run, str(folder), 5) if beside.workdir else beside


def needed_by(name, folder):
    """What a trainer cannot do without, for a run that another workload measured: parameters of paths that exist."""
    params = TRAINER.find(name).workload.params
    for script in ("pretrain_gpt.py", "run_train.py", "train.py", "scripts/training/run_recipe.py"):
        (folder / "checkout" / script).parent.mkdir(parents=True, exist_ok=True)
        (folder / "checkout" / script).touch()
    known = {"root": str(folder / "checkout"), "script": "train.py", "model_name": "a/model"}
    return {name: value for name, value in known.items() if name in params}


def as_options(params):
    return more(f"{name}={value}" for name, value in params.items())


def more(options):
    return [word for option in options for word in ("--param", option)]


@pytest.mark.parametrize("name", [name for name in own_trainers() if name != "command"])
def test_every_adapter_writes_its_own_configuration(tmp_path, name):
    run = trainer_results(tmp_path / "r.parquet", dtype="bf16", micro_batch_size=2, params={"not": "the trainer's"})
    record = made_record(run)
    of_trainer = trainer_format.run_of(as_json(record), name)
    assert (of_trainer.layout, dict(of_trainer.shape), of_trainer.workload) == (run.layout, dict(LLAMA), name)
    assert not of_trainer.params
    given = needed_by(name, tmp_path)
    if given:
        refused = exported(tmp_path / "r.parquet", "--format", name, code=2)
        assert any(f"--param {parameter}=" in refused for parameter in given), "no command that cannot run"
    of_trainer = replace(of_trainer, params=given)
    wanted = made_by(name, of_trainer, Path.cwd())
    options = ("--format", name, *as_options(given))
    shown = exported(tmp_path / "r.parquet", *options)
    for text in wanted.files.values():
        assert text.rstrip("\n") in shown
    wanted = made_by(name, of_trainer, tmp_path / "out" / "llama-1-nodes")
    written = exported(tmp_path / "r.parquet", *options, "--out", tmp_path / "out").split()
    folder = tmp_path / "out" / "llama-1-nodes"
    assert {Path(path) for path in written} == {folder / file for file in (*wanted.files, "command.sh")}
    assert {file: (folder / file).read_text() for file in wanted.files} == dict(wanted.files)
    assert subprocess.run(["sh", "-n", folder / "command.sh"], check=False).returncode == 0
    script = (folder / "command.sh").read_text()
    assert f"# measured by the workload {run.workload}, " in script
    assert shlex.join(wanted.program) in script
    assert (f"cd {Path(wanted.workdir).absolute()} && " in script) == bool(wanted.workdir)


FOREIGN = yaml.safe_load(Path(__file__).with_name("foreign_runs.yaml").read_text())


@pytest.mark.parametrize("kind", FOREIGN)
def test_another_workloads_run_is_exported_only_to_trainers_that_can_run_it(tmp_path, kind):
    """A model or layout that the trainer does not have must not silently become one that it has."""
    shape, changes = (FOREIGN[kind].get(part, {}) for part in ("shape", "run"))
    whole = ModelShape(**{**LLAMA, **({} if "head_dim" in shape else {"head_dim": 0}), **shape}).stated()
    run = made_run(
        **{"model": "m", "shape": whole, "gpus_per_node": 8, "nodes": 1, "dp": 8, "dtype": "bf16", **changes}
    )
    record = as_json(made_record(run))
    exported_to, mistakes = set(), {}
    for name in set(own_trainers()) - {"command"}:
        try:
            trainer_format.made(record, name, None, tmp_path, needed_by(name, tmp_path))
            exported_to.add(name)
        except SweepError as error:
            mistakes[name] = error.mistakes
    assert all(name in str(one) for name, of_trainer in mistakes.items() for one in of_trainer)
    assert exported_to == set(FOREIGN[kind]["able"])


def test_parameters_that_are_wrong_are_refused_together(tmp_path):
    trainer_results(tmp_path / "r.parquet", dtype="bf16")
    options = ("rot=/x", "sequence_parallel=two", "root")
    refused = exported(tmp_path / "r.parquet", "--format", "megatron", *more(options), code=2)
    assert "--param rot" in refused
    assert "did you mean root" in refused
    assert "--param sequence_parallel" in refused
    assert "expected true or false" in refused
    assert "--param root: a parameter is NAME=VALUE" in refused
    refused = exported(tmp_path / "r.parquet", "--format", "megatron", "--param", "transformer_impl=apex", code=2)
    assert "transformer_impl = apex, only transformer_engine, local" in refused
    assert "has no effect" in exported(tmp_path / "r.parquet", "--param", "root=x", code=2)


def test_a_record_without_its_command_line_is_refused_as_that(tmp_path):
    """As of an imported table: it says that a command was measured, not which."""
    trainer_results(tmp_path / "r.parquet", workload="command", dtype="bf16")
    refused = exported(tmp_path / "r.parquet", "--format", "command", code=2)
    assert refused.splitlines() == [
        "error: llama on 1 node: the trainer command needs params.command, which the record does not state "
        "(--param command=VALUE)"
    ]
    shown = exported(tmp_path / "r.parquet", "--format", "command", "--param", "command=run --tp {{ tp }}")
    assert "run --tp 1" in shown
    refused = exported(tmp_path / "r.parquet", "--format", "command", "--param", "command={{ tp", code=2)
    assert "params.command is no jinja2 template of names that a run has: {{ tp (--param command=VALUE)" in refused


def test_the_command_has_what_the_run_was_given(tmp_path):
    """Its environment, interpreter, further arguments and directory: each quoted for a shell."""
    params = {"python": "/opt/env/bin/python", "arguments": "--seed 7 --name 'a b'", "workdir": str(tmp_path / "w d")}
    env = {"NCCL_ALGO": "Ring Tree"}
    (tmp_path / "w d").mkdir()
    trainer_results(tmp_path / "r.parquet", workload="torchtitan", params=params, env=env, dtype="bf16")
    exported(tmp_path / "r.parquet", "--format", "torchtitan", "--out", tmp_path / "out")
    command = (tmp_path / "out" / "llama-1-nodes" / "command.sh").read_text().splitlines()[-1]
    assert command.startswith(f"cd '{tmp_path}/w d' && NCCL_ALGO='Ring Tree' ")
    assert " /opt/env/bin/python -m " in command
    assert command.endswith(" --seed 7 --name 'a b'")


@pytest.mark.parametrize(("form", "nodes"), [("flags", 1), ("json", 1), ("csv", 1), ("deepspeed", 1), ("deepspeed", 2)])
def test_a_secret_is_in_no_export_and_a_command_asks_for_it(tmp_path, form, nodes):
    params = {"script": "s.py", "python": "/bin/echo"}
    env = {"HF_TOKEN": "hunter2x"}
    run = made_run(shape=LLAMA, workload="deepspeed", env=env, nodes=nodes, dp=2 * nodes, params=params)
    write_results(tmp_path / "r.parquet", [made_record(run)])
    text = exported(tmp_path / "r.parquet", "--format", form)
    assert "hunter2x" not in text
    assert "HF_TOKEN" in text
    if form != "deepspeed":
        return
    exported(tmp_path / "r.parquet", "--format", form, "--out", tmp_path / "out")
    (script,) = (tmp_path / "out").glob("*/command.sh")
    srun = 'srun() { while [ "$1" != sh ]; do shift; done; "$@"; }; . ./command.sh'
    for env, code in (({}, 2), ({"HF_TOKEN": "mine"}, 0)):
        environment = {"PATH": os.environ["PATH"], "SLURM_NODEID": "0", "SLURM_CPUS_ON_NODE": "1", **env}
        done = subprocess.run(
            ["sh", "-c", srun], cwd=script.parent, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert ("HF_TOKEN: is a secret, set it first" in done.stderr) == (code == 2), done.stderr


ON_A_SITE = Path(__file__).with_name("on_a_site.yaml").read_text()
SBATCH = """\
#SBATCH --nodes=2
#SBATCH --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --partition=gpu
#SBATCH --account=llm
#SBATCH --exclude=n7
#SBATCH --gres=gpu:2
#SBATCH --mem=10G
"""


def test_the_command_of_a_sweep_has_what_its_site_gives_every_run(tmp_path):
    """From any directory: interpreter, variables, shell lines, container, sbatch's options; no secret."""
    (tmp_path / "elsewhere").mkdir()
    sweep = measured(tmp_path / "s", ON_A_SITE)
    provenance = json.loads(sweep.directory.provenance.read_text())
    sweep.directory.provenance.write_text(json.dumps({**provenance, "directory": str(tmp_path)}))
    (tmp_path / "train.py").touch()
    words = ("best", tmp_path / "s", "--format", "command")
    written = driving.succeeds(*words, "--out", "out", cwd=tmp_path / "elsewhere")
    one, two = ((tmp_path / "elsewhere" / line).read_text() for line in written.stdout.split())
    assert two.startswith(f"#!/bin/bash\n{SBATCH}# tiny-1M on 2 nodes")
    for script, ranks in ((one, "--standalone"), (two, "--nnodes=2")):
        *_, load, left_out, command = script.splitlines()
        assert load == "module load cuda"
        assert left_out == "# left out, set it first: export HF_TOKEN=<redacted>"
        *outer, shell, option, inner = shlex.split(command)
        assert outer[-5:] == ["--network=a b", "apptainer", "exec", "--nv", "image.sif"]
        assert (shell, option) == ("sh", "-c")
        assert inner.startswith(f"cd {tmp_path} && ")
        assert " NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0 NCCL_ALGO=Ring " in inner
        assert " HF_TOKEN=\"${HF_TOKEN:?is a secret, set it first}\" CACHE='/local/a b' " in inner
        assert f" /shared/venv/bin/python -m torch.distributed.run {ranks} " in inner
        assert inner.endswith(" train.py --seed 7")
    assert "--master-port=31000" in two
    driving.succeeds("report", tmp_path / "s", "--no-figures", cwd=tmp_path / "elsewhere")
    report = (tmp_path / "s" / "report.html").read_text()
    assert "/shared/venv/bin/python -m torch" in report
    assert "hunter2x" not in one + two + report


def test_a_script_that_is_not_there_is_refused(tmp_path):
    params = {"root": str(tmp_path / "no-checkout"), "workdir": str(tmp_path)}
    trainer_results(tmp_path / "r.parquet", workload="nanotron", params=params, dtype="bf16")
    refused = exported(tmp_path / "r.parquet", "--format", "nanotron", *as_options(params), code=2)
    assert f"{tmp_path}/no-checkout/run_train.py" in refused
    assert "the trainer's script does not exist here (--param root=DIR" in refused


def test_cells_that_a_trainer_cannot_run_are_all_named_and_the_others_exported_when_asked(tmp_path):
    """Two cells with an axis that the adapter lacks, and one that it can run."""
    lacking = [n for n in own_trainers() if not TRAINER.find(n).workload.axes & {"cp"}]
    assert lacking
    layouts = {1: {"dp": 8}, 2: {"dp": 8, "cp": 2}, 4: {"dp": 8, "cp": 4}}
    runs = [made_run(model="llama", shape=LLAMA, gpus_per_node=8, nodes=n, **given) for n, given in layouts.items()]
    write_results(tmp_path / "r.parquet", [made_record(run) for run in runs])
    given = as_options(needed_by(lacking[0], tmp_path))
    reported = exported(tmp_path / "r.parquet", "--format", lacking[0], *given, code=2)
    assert f"llama on 2 nodes: {lacking[0]} has no cp = 2" in reported
    assert f"llama on 4 nodes: {lacking[0]} has no cp = 4" in reported
    assert "--skip exports the others" in reported
    options = ("--format", lacking[0], "--skip", *given, "--out", tmp_path / "o")
    done = driving.succeeds("best", tmp_path / "r.parquet", *options)
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["llama-1-nodes"]
    assert done.stderr.count("left out: llama on") == 2
    assert "--skip: has no effect" in exported(tmp_path / "r.parquet", "--skip", code=2)


def test_missing_values_are_null_and_a_trainer_is_refused_a_record_with_all_that_it_lacks(tmp_path):
    lost = ["cp", "ep", "peak_memory_bytes", "gpus_per_node", "sequence_length"]
    made_grid(1, 1, failing=False).drop(columns=lost).to_parquet(tmp_path / "r.parquet")
    row = json.loads(exported(tmp_path / "r.parquet"))[0]
    assert (row["cp"], row["ep"], row["peak_memory_bytes"]) == (None, None, None)
    assert "nan" not in exported(tmp_path / "r.parquet", "--format", "csv").lower()
    reported = exported(tmp_path / "r.parquet", "--format", own_trainers()[-1], code=2)
    assert "gpus_per_node" in reported
    assert "sequence_length" in reported
