"""How much `pip install` of a requirement would download, printed before it starts: `make demo` asks.

    python tests/support/download_size.py [--write FILE] OPTIONS_OF_PIP torch==2.13.0

``FILE`` gets what to install: without a GPU the CPU build, where pip finds one as torch==2.13.0+cpu; else what was
asked for. Standard library only. What cannot be found out is reported, and is no error.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

CUDA = ("nvidia-", "cuda-", "triton")
"""names of packages that only a CUDA build of torch needs, as they begin"""
DRIVER = Path("/proc/driver/nvidia/version")


def main(words: list[str]) -> None:
    """Print the size, and what to do about a CUDA build where there is no GPU."""
    target = Path(words[1]) if words[0] == "--write" else None
    *options, wanted = words[2:] if target else words
    files, cuda = resolved([*options, wanted]), False
    if files is not None and not DRIVER.exists() and is_cuda(files):
        of_cpu = resolved([*options, f"{wanted}+cpu"]) if re.fullmatch(r"[\w-]+==[\d.]+", wanted) else None
        cuda = of_cpu is None or is_cuda(of_cpu)
        if not cuda:
            files, wanted = of_cpu, f"{wanted}+cpu"
    if target:
        target.write_text(wanted)
    if files is None:
        print("the size of the download is not known: pip could not resolve it in advance")
        return
    sizes = [size_of(file["download_info"]["url"]) for file in files]
    known = sum(size for size in sizes if size is not None)
    unknown = f", and {sizes.count(None)} of unknown size" if None in sizes else ""
    print(f"to download: {known / 1e6:,.1f} MB in {len(files)} packages{unknown} (pip's cache may have some)")
    if cuda:
        print("This is the CUDA build of torch, and this machine has no NVIDIA GPU. The CPU build is enough: README.md")


def resolved(words: list[str]) -> list[dict[str, Any]] | None:
    """The packages that pip would install; None where it finds no way."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
    asked = subprocess.run([*command, "--report", "-", *words], capture_output=True, text=True, check=False)
    found: list[dict[str, Any]] | None = json.loads(asked.stdout)["install"] if asked.returncode == 0 else None
    return found


def is_cuda(files: list[dict[str, Any]]) -> bool:
    """Whether a CUDA build is among the packages."""
    return any(file["metadata"]["name"].startswith(CUDA) for file in files)


def size_of(url: str) -> int | None:
    """Bytes of a file; None if its server does not say."""
    parts = urllib.parse.urlparse(url)
    try:
        if parts.scheme == "file":
            return Path(urllib.request.url2pathname(parts.path)).stat().st_size
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


if __name__ == "__main__":
    main(sys.argv[1:])
