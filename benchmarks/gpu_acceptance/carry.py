"""Pack what a borrowed machine without network needs into one folder.

    python -m benchmarks.gpu_acceptance.carry FOLDER [--results DIR] [--python 3.12]

The folder has this checkout, the wheels that such a machine lacks, what earlier calls measured (`--results`: where the
files that came back from there lie), and `borrowed.py`, which runs the next parts there:

    python3 FOLDER/borrowed.py --seconds N --results DIR [--rehearse]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from benchmarks.gpu_acceptance.borrowed import SOURCE, STATE, WHEELS

REPOSITORY = Path(__file__).resolve().parents[2]
PARTS = (
    *("sweep", "bench_workloads", "analysis", "templates", "examples", "benchmarks"),
    *("pyproject.toml", "tests/__init__.py", "tests/support"),
)
"""of the repository: what the acceptance imports and reads"""
PACKAGES = ("pydantic", "msgspec", "simpleeval", "submitit")
"""What an image for PyTorch lacks of the project's dependencies. pip adds what they need: the very release of
pydantic-core, annotated-types, typing-inspection, typing-extensions and cloudpickle"""
GLIBC = ("2_17", "2_24", "2_27", "2_28")
"""releases that wheels are built for: pip takes no older one for a newer one of itself"""
MOST_BYTES = 10_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, help="where the files that came back from the machine lie")
    parser.add_argument("--python", default="3.12", help="its version there")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    if folder.exists():
        print(f"{folder} exists: name a new folder", file=sys.stderr)
        return 2
    if arguments.results and not (arguments.results / STATE).exists():
        print(f"{arguments.results} has no {STATE}: name the folder of the files that came back", file=sys.stderr)
        return 2
    (folder / WHEELS).mkdir(parents=True)
    _source(folder / SOURCE)
    shutil.copy(Path(__file__).with_name("borrowed.py"), folder)
    if arguments.results:
        shutil.copy(arguments.results / STATE, folder)
    if (failed := _wheels(folder / WHEELS, arguments.python)) != 0:
        return failed
    return _checked(folder)


def _source(path: Path) -> None:
    """The files that git tracks or would, as they are in the working tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PARTS]
    names = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout
    with tarfile.open(path, "w:gz") as packed:
        for name in sorted(filter(None, names.split("\0"))):
            if (REPOSITORY / name).exists():
                packed.add(REPOSITORY / name, name)


def _wheels(into: Path, python: str) -> int:
    command = [sys.executable, "-m", "pip", "download", "-q", "-d", str(into), "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python]
    command += [word for release in GLIBC for word in ("--platform", f"manylinux_{release}_x86_64")]
    return subprocess.run([*command, "--platform", "manylinux2014_x86_64", *PACKAGES], check=False).returncode


def _checked(folder: Path) -> int:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    total = sum(path.stat().st_size for path in files)
    for path in files:
        print(f"{path.stat().st_size:>10,}  {path.relative_to(folder)}")
    print(f"{total:>10,}  in all")
    if total > MOST_BYTES:
        print(f"{folder} is over {MOST_BYTES:,} bytes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
