"""What a record, an archive or somebody else's directory states is shown and computed with: never a path, a template or
a command.
"""

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from bench_workloads.trainers.driver.templates import LONGEST, render
from sweep.contract import StatedRun
from sweep.errors import SweepError
from sweep.inputs.check import LONGEST_TEXT
from sweep.inputs.load import load_grid, parse_grid
from sweep.library import trainer_format
from sweep.library.winners import METRIC, as_text, winners
from sweep.planning.build import build
from sweep.records.collect import write_results
from sweep.records.schema import COLUMNS
from sweep.stated import Stated, shell_word
from sweep.store.archive import pack
from sweep.store.directory import SweepDir
from sweep.store.snapshot import read_state
from tests.support.made_records import as_json, made_record, made_run
from tests.support.made_sweeps import measured
from tests.support.paths import REPOSITORY
from tests.support.watched import watched

SECRET = "machine example.org login me password hunter2x"
COMMAND = {"command": "run --tp {{ tp }}", "metrics": "iteration: (\\d+)"}
GRID = """\
name: theirs
workload: command
models: [tiny-1M]
nodes: 1
sequence_length: 64
global_batch: 1024
dtype: fp32
micro_batch_size: 4
iterations: 3
constraints: ["tp == 1 and pp == 1 and zero == 0"]
params: {command: "python train.py {{ config }}", config: "dp: {{ dp }}", metrics: "iteration: ^step (\\\\d+)"}
site: {gpu: cpu, gpus_per_node: 2, setup: ["touch x", "echo \\e[31m\\n; touch y"]}
"""


def results(path, params=COMMAND, **changes):
    run = made_run(workload="command", params={**COMMAND, **params}, **changes)
    write_results(path, [made_record(run)])
    return path


def exported(path, out, *more):
    return ("best", path, "--format", "command", "--out", out, *more)


def below(paths, folder):
    return all(Path(path).is_relative_to(folder) for path in paths)


@pytest.mark.parametrize(
    "name",
    ["../../rc", "/tmp/rc", "..", ".bashrc", "-rf", "a/b", "a\\..\\b\0", "x\ny", "n" * 300, "", "command.sh", "ключ"],
)
def test_a_files_name_that_is_not_plain_is_refused(name):
    run = made_run(workload="command", params={**COMMAND, "config": "mine", "config_name": name})
    with pytest.raises(SweepError, match="name"):
        trainer_format.made(as_json(made_record(run)), "command", None, Path("out"), {})


def test_an_export_changes_nothing_outside_its_folder_and_opens_no_file_that_a_record_names(tmp_path):
    """By its configuration's name, by the text of it, by a model's name, and by a link that waits in the folder."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    (home / "rc").write_text("mine")
    (home / "netrc").write_text(SECRET)
    (work / "linked").mkdir()
    (work / "linked" / "1B-1-nodes").symlink_to(home)
    up = results(work / "up.parquet", {"config": "theirs", "config_name": "../../../home/rc"})
    there = results(work / "there.parquet", {"config": "theirs", "config_name": str(home / "rc")})
    file = results(work / "file.parquet", {"config": f"@{home / 'netrc'}"})
    device = results(work / "device.parquet", {"config": "@/dev/zero"})
    model = results(work / "model.parquet", model="../../../home/x\n\0" + "y" * 300)
    plain = results(work / "plain.parquet", {"config": "theirs", "root": str(home), "workdir": str(home)})
    commands = [exported(path, "out") for path in (up, there, file, device, model)]
    commands += [
        exported(plain, "linked"),
        *(("report", path, "--out", f"{path.stem}.html", "--no-figures") for path in (file, device)),
    ]
    for command in commands:
        done = watched(*command, cwd=work)
        assert "Traceback" not in done.err, done.err
        assert done.code == (0 if command[0] == "report" or command[1] == model else 2), done.err
        assert below(done.changed, work), command
        assert not any(Path(path).is_relative_to(home) or path == "/dev/zero" for path in done.read), command
        assert not done.started
        assert SECRET not in done.out + done.err
    assert (home / "rc").read_text() == "mine"
    assert sorted(path.name for path in home.iterdir()) == ["netrc", "rc"]
    assert all(SECRET not in path.read_text() for path in work.glob("*.html"))
    (script,) = (work / "out").glob("*/command.sh")
    assert re.fullmatch(r"[A-Za-z0-9_.@+-]{1,120}", script.parent.name)


BOMBS = (
    "{{ 'a' * 10**9 }}",
    "{{ 9 ** 9 ** 9 ** 9 }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{{ 'a'.__class__.__mro__ }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ " + "(" * 90 + "1" + ")" * 90 + " }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ 4611686018427387904 * 4 }}",
    "{{ tp // 0 }}",
    "{{ no_such }}",
    "{# unclosed",
    "{% raw %}{{ tp }}{% endraw %}",
    "{{ model }}" * 20_000,
)


@pytest.mark.parametrize("bomb", BOMBS)
def test_no_text_of_a_record_is_evaluated_as_a_template(bomb):
    run = StatedRun(**vars(made_run(workload="command", params=COMMAND)))
    try:
        text = render(run, bomb, {"tp": 1, "model": "m" * 1000}, quoted=False)
    except ValueError:
        return
    assert text == "1", "nothing but arithmetic"


def test_names_and_arithmetic_of_a_record_are_laid_out_as_in_a_rank():
    text = "--a={{ steps - 1 }} {{grad_accum*dp}} '{{ model }}' {\"x\": {{ dp / 2 }}}"
    values = {"steps": 8, "grad_accum": 4, "dp": 2, "model": "it's; touch x"}
    stated, own = (kind(**vars(made_run())) for kind in (StatedRun, type(made_run())))
    for quoted in (True, False):
        assert render(stated, text, values, quoted=quoted) == render(own, text, values, quoted=quoted)
    assert len(render(stated, "{{ model }}", {"model": "m" * (LONGEST - 1)}, quoted=False)) == LONGEST - 1


HOSTILE = (
    "../../../x", "/etc/passwd", "@/etc/passwd", "{{ 7 * 7 }}", "{{ cycler.__init__ }}", "A;touch x;B", "$(touch x)",
    "`touch x`", "'; touch x; '", '"; touch x; "', "a\nb\ntouch x", "\r\ntouch x\r", "-rf", "--help", "CON", "[/red]",
    "$x^{y", "\u202egnp.exe", "\x1b]0;owned\x07", "\0", "x" * 5000, "<script>touch x</script>", "=1+1", "~/x", "%s%n",
)  # fmt: skip
JSON_COLUMNS = [name for name in (column.name for column in COLUMNS) if name.endswith("_json")]
TEXT_COLUMNS = [
    column.name
    for column in COLUMNS
    if column.type == "string" and column.name not in (*JSON_COLUMNS, "outcome", "stopped")
]


def hostile_records(place):
    """A cell per text: each text column of its record states the text, with the lists and JSON that allow any text."""
    records = [as_json(made_record(made_run(workload="command", params=COMMAND))) for _ in HOSTILE]
    for number, (record, text) in enumerate(zip(records, HOSTILE, strict=True)):
        record |= dict.fromkeys(TEXT_COLUMNS, text) | {"notes": [text], "node_names": [text], "nodes": number + 1}
        record |= {"workload": "command", "recompute": "none", "pp_schedule": "1f1b", "dtype": "bf16"}
        record |= {"gpus": 2 * (number + 1), "dp": 2 * (number + 1)}
        params = {**COMMAND, **dict.fromkeys(("a", "b", "arguments", "python"), shlex.quote(text.replace("\0", "")))}
        record |= {"params_json": json.dumps(params), "env_json": json.dumps({"NAME": text.replace("\0", "")})}
        record |= {"versions_json": json.dumps({text: text}), "extra_json": json.dumps({"x": text})}
    pd.DataFrame(records).assign(final=True).to_parquet(place)
    return place


def test_records_with_hostile_texts_in_every_column_stay_texts_through_every_command(tmp_path):
    path = hostile_records(tmp_path / "r.parquet")
    reading = [("best", path), *(("best", path, "--format", form) for form in ("json", "csv", "markdown", "flags"))]
    reading += [exported(path, "out", "--skip"), ("best", path, "--format", "megatron", "--skip")]
    reading += [("report", path, "--no-figures"), ("heatmap", path, "--json"), ("compare", path, path)]
    done = {str(command): watched(*command, cwd=tmp_path) for command in reading}
    for command, one in done.items():
        assert one.code in (0, 2), (command, one.err)
        assert "Traceback" not in one.err, (command, one.err)
        assert below(one.changed, tmp_path), command
        assert not one.started, command
        assert not [read for read in one.read if "passwd" in read], command
    scripts = sorted((tmp_path / "out").glob("*/command.sh"))
    assert len(scripts) >= len(HOSTILE) - 2, done[str(reading[5])].err
    (tmp_path / "empty").mkdir()
    flags = tmp_path / "flags.sh"
    text = done[str(reading[4])].out
    assert text or done[str(reading[4])].code == 2
    flags.write_text(text)
    for script in [*scripts, flags]:
        assert subprocess.run(["bash", "-n", script], check=False).returncode == 0, script.read_text()
        content = script.read_text()
        assert all(line.startswith("#") for line in content.splitlines()[:3]) or script == flags
    everything = "".join(f"(. {shlex.quote(str(script))}) </dev/null >/dev/null 2>&1\n" for script in [*scripts, flags])
    bash = shutil.which("bash")
    subprocess.run([bash, "-c", everything], cwd=tmp_path / "empty", env={"PATH": "/no"}, check=False, timeout=60)
    assert not list((tmp_path / "empty").iterdir())
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize("name", ["A;touch x;B", "A B", "A\nB", "1A", "", "A=B", "Ä", "A" * 200, "A\0"])
def test_what_is_no_name_of_a_variable_is_in_no_script(tmp_path, name):
    run = made_run(workload="command", params=COMMAND, env={name: "1"})
    with pytest.raises(SweepError, match="no name of an environment variable"):
        trainer_format.made(as_json(made_record(run)), "command", None, tmp_path, {})
    write_results(tmp_path / "r.parquet", [made_record(run)])
    rows = winners([tmp_path / "r.parquet"])
    with pytest.raises(SweepError, match="no name of an environment variable"):
        as_text(rows, "flags", METRIC)


def test_a_word_of_a_script_is_that_word():
    texts = [text for text in HOSTILE if "\0" not in text] + ["", "if", "done", "a b", "!x"]
    script = "printf '%s\\0' " + " ".join(map(shell_word, texts))
    for shell in ("bash", "sh"):
        done = subprocess.run([shell, "-c", script], capture_output=True, check=True)
        assert done.stdout.decode().split("\0")[:-1] == texts
    for text in ("a\0b", "\ud800"):
        with pytest.raises(SweepError, match="cannot be in a script"):
            shell_word(text)
    assert subprocess.run(["bash", "-n", "-c", shell_word("if")], check=False).returncode == 0


def test_a_stated_text_is_on_one_line_and_a_plain_name_and_nothing_else():
    names = {Stated(text).file_name() for text in (*HOSTILE, "con", "a/b", "a_b", "", "..")}
    assert len(names) == len(HOSTILE) + 5, "another text, another name"
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+@-]{0,99}", name) for name in names), names
    assert Stated("8B@old-1-nodes").file_name() == "8B@old-1-nodes"
    for text in HOSTILE:
        line = Stated(text).line()
        assert line.isprintable(), line
        assert len(line) <= 2100
    with pytest.raises(TypeError):
        f"{Stated('x')}"
    with pytest.raises(TypeError):
        Path(Stated("x"))


def test_a_grid_reads_the_file_of_a_parameter_and_every_run_has_its_text(tmp_path):
    (tmp_path / "a.yaml").write_text("dp: {{ dp }}\n")
    (tmp_path / "b.yaml").write_text("tp: {{ tp }}\n")
    (tmp_path / "again.yaml").write_text("@b.yaml")
    (tmp_path / "large.yaml").write_text("x" * (LONGEST_TEXT + 1))
    os.mkfifo(tmp_path / "pipe")
    grid = tmp_path / "grid.yaml"
    text = GRID.replace('config: "dp: {{ dp }}"', f'config: ["@{tmp_path}/a.yaml", "inline"]')
    grid.write_text(text + f'include: [{{config: "@{tmp_path}/b.yaml"}}]\n')
    read = load_grid(grid)
    runs = [planned.run() for planned in build(read, read.site).runs]
    assert {run.params["config"] for run in runs} == {"dp: {{ dp }}\n", "inline", "tp: {{ tp }}\n"}
    assert parse_grid(read.to_yaml(), "saved", opens=False) == read
    for wrong in ("again.yaml", "large.yaml", "pipe", "no-such", "."):
        grid.write_text(GRID.replace("dp: {{ dp }}", f"@{tmp_path}/{wrong}"))
        with pytest.raises(SweepError, match=f"grid.yaml:11: params.config: @.*/{wrong} is no readable"):
            load_grid(grid)


def test_a_reader_gives_a_file_for_a_parameter_of_an_export(tmp_path):
    (tmp_path / "mine.yaml").write_text("mine: {{ tp }}")
    path = results(tmp_path / "r.parquet")
    done = watched(*exported(path, "out", "--param", "config=@mine.yaml"), cwd=tmp_path)
    assert done.code == 0, done.err
    assert (tmp_path / "out" / "1B-1-nodes" / "config.yaml").read_text() == "mine: 1"


def theirs(folder, *, home):
    """A sweep as somebody else sends it: its files state paths of the reader."""
    sweep = measured(folder, GRID)
    about = json.loads(sweep.directory.provenance.read_text())
    sweep.directory.provenance.write_text(json.dumps({**about, "directory": str(home), "grid": None}))
    return sweep.directory


def test_a_directory_of_somebody_else_opens_nothing_of_the_reader(tmp_path):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    shape = dict.fromkeys(("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"), 4)
    (home / "config.json").write_text(json.dumps({"model_type": "llama", "intermediate_size": 4, **shape}))
    (home / "netrc").write_text(SECRET)
    sent = theirs(work / "sent", home=home)
    pack(sent, read_state(sent), work / "sent.tar.zst", "none")
    linked = theirs(work / "linked", home=home)
    linked.grid.rename(work / "grid")
    linked.grid.symlink_to(home / "netrc")
    naming = theirs(work / "naming", home=home)
    grid = naming.grid.read_text()
    naming.grid.write_text(re.sub(r"(?s)models:.*?\n(?=\w)", f"models: {{m: {home}/config.json}}\n", grid))
    commands = [exported(work / "sent.tar.zst", "out"), ("report", "sent.tar.zst", "--no-figures")]
    commands += [("report", "linked", "--no-figures", "--out", "linked.html"), ("status", "naming")]
    archive, report, link, named = (watched(*command, cwd=work) for command in commands)
    for done in (archive, report, link, named):
        assert "Traceback" not in done.err, done.err
        assert not done.started
        assert not [path for path in done.read if Path(path).is_relative_to(home)]
    assert archive.code == 0, archive.err
    script = (work / "out" / "tiny-1M-1-nodes" / "command.sh").read_text()
    assert "which others may have written: read before running" in script
    assert "which others may have written" in archive.err
    assert f"cd {home} && " in script, "where it was launched is a text too"
    assert [
        line for line in script.splitlines() if "touch" in line and not line.startswith("# setup that others ")
    ] == []
    assert script.count("# setup that others wrote, left out: ") == 3
    assert named.code == 2
    assert SECRET not in "".join(path.read_text() for path in work.glob("*.html"))


@pytest.mark.parametrize("name", ["../../rc", "/etc/passwd", "..", "", "a\0b"])
def test_a_name_that_a_journal_states_stays_in_its_folder(tmp_path, name):
    directory = SweepDir(tmp_path)
    with pytest.raises(SweepError, match="no name of a file"):
        directory.pilot(name)
    if "/" in name or "\0" in name:
        for path in (lambda: directory.log(name, 1), lambda: directory.claim(name, 1), lambda: directory.journal(name)):
            with pytest.raises(SweepError, match="no name of a file"):
                path()


@pytest.mark.parametrize(
    "changes",
    [
        {"params_json": "[1]"},
        {"params_json": '{"command": {"a": 1}}'},
        {"params_json": "{"},
        {"params_json": "[" * 100_000},
        {"env_json": "7"},
        {"shape_json": '{"num_layers": "4; touch x"}'},
        {"shape_json": '{"num_layers": 4}'},
        {"shape_json": '{"__class__": 4}'},
        {"dp": 0},
        {"nodes": -1},
        {"tp": 2**40},
    ],
)
def test_a_record_that_states_something_else_than_a_run_is_refused_with_a_message(tmp_path, changes):
    record = as_json(made_record(made_run(workload="command", params=COMMAND)))
    with pytest.raises(SweepError):
        trainer_format.made({**record, **changes}, "command", None, tmp_path, {})


ONLY_IN = {
    "from_string": ("bench_workloads/trainers/driver/templates.py",),
    "configure": ("bench_workloads/trainers/driver/driver.py", "sweep/library/trainer_format.py"),
    "shlex.quote": (
        "sweep/stated.py",
        "sweep/redaction.py",
        "bench_workloads/",
    ),  # a rank starts its trainer without a shell
    "shlex.join": ("bench_workloads/",),
    "os.chdir": ("sweep/pilot/",),
    "StatedRun": ("sweep/library/trainer_format.py",),
    "eval": (),
    "exec": ("sweep/pilot/",),
}
"""call -> where alone it may be: there texts become commands, files, words of a shell"""


def test_texts_become_commands_files_and_words_in_a_few_places_only():
    strange = []
    for package in ("sweep", "analysis", "bench_workloads"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            file = str(path.relative_to(REPOSITORY))
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call):
                    called = ast.unparse(node.func)
                    for name, places in ONLY_IN.items():
                        own = called == name or (name in ("from_string", "configure") and called.endswith(f".{name}"))
                        if own and not file.startswith(places or ("nowhere",)):
                            strange.append(f"{file}:{node.lineno}: {called}")
    assert strange == []
