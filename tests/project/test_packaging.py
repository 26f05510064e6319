"""The wheel: what is in it, and that an installation of it renders the same script as a checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support import driving
from tests.support.made_sweeps import GRID
from tests.support.paths import REPOSITORY


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it for a user, from a copy so that the checkout stays clean."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(REPOSITORY)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("trainsweep-*.whl")
    return built


def test_what_the_wheel_holds(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = archive.read(next(n for n in names if n.endswith("entry_points.txt"))).decode()
        metadata = archive.read(next(n for n in names if n.endswith("METADATA"))).decode()
    templates = {
        f"sweep/_templates/{path.relative_to(REPOSITORY / 'templates')}"
        for path in (REPOSITORY / "templates").rglob("*")
        if path.is_file()
    }
    assert templates <= names
    assert {"sweep/contract.py", "sweep/executors/slurm.py"} <= names
    assert not [name for name in names if name.startswith(("tests/", "templates/", "docs/", "examples/"))]
    assert "sweep/_examples/laptop.yaml" in names, "the grid of `sweep demo`"
    assert "sweep = sweep.cli.main:main" in entry_points
    assert any(name.endswith("licenses/LICENSE") for name in names), "the licence travels with the wheel"
    assert "Name: trainsweep" in metadata
    assert "Requires-Python: >=3.10" in metadata
    core = [line for line in metadata.splitlines() if line.startswith("Requires-Dist:") and "extra ==" not in line]
    assert not [line for line in core if "torch" in line or "wandb" in line], "a cluster brings its own torch"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel. Its dependencies come from the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder)
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install += ["install", "--quiet", "--no-deps", "--no-compile", str(wheel)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # A .pth line adds a folder without reading the .pth files in it, so the editable installation of the checkout stays
    # out of sight.
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    shared = folder / "lib" / version / "site-packages" / "shared.pth"
    shared.write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder


def test_the_wheel_works_where_the_user_has_an_analysis_and_templates_of_their_own(
    installed: Path, tmp_path: Path
) -> None:
    for folder in ("analysis", "templates"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("raise ImportError('this is the user's own')\n")
    for path in (REPOSITORY / "templates").iterdir():
        (tmp_path / "templates" / path.name).write_text("{{ of_the_user }}")
    (tmp_path / "grid.yaml").write_text(GRID)

    def of_wheel(program: str, *words: str) -> str:
        command = [str(installed / "bin" / program), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def sweep(*words: str) -> str:
        return of_wheel("sweep", *words)

    home = Path(of_wheel("python", "-I", "-c", "import sweep; print(sweep.__file__)")).parents[1]
    assert installed in home.parents
    sweep("plan", "grid.yaml")
    sweep("launch", "grid.yaml", "--executor", "local", "--dir", "s", "--yes", "--detach")
    driving.wait_for(lambda: list((tmp_path / "s" / "figures").glob("*.png")), 60)  # drawn by the detached launcher
    sweep("report", "s")
    dry = ("launch", "grid.yaml", "--executor", "slurm", "--dry-run", "--dir", "other", "-o", "site.python=/p")
    own = driving.succeeds(*dry, cwd=tmp_path).stdout
    assert sweep(*dry).replace(str(home), str(REPOSITORY)) == own, "as the checkout renders it"
    assert "4 ok" in (tmp_path / "s" / "launcher.out").read_text()


@pytest.mark.long
@pytest.mark.timeout(1900)
def test_the_demo_of_an_installed_wheel_draws_a_heatmap(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [installed / "bin" / "sweep", "demo"], capture_output=True, text=True, cwd=tmp_path, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr
    assert "16 runs on this machine" in done.stderr
    assert "then up to 8 top configurations once more" in done.stderr
    assert (tmp_path / "sweeps" / "demo" / "figures" / "heatmap.png").stat().st_size > 10_000


def test_without_torch_the_demo_names_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['torch'] = None; from sweep.cli.main import main; sys.argv[1:] = ['demo']; main()"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "pip install torch" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
