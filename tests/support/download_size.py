"""How much `pip install` of these requirements would download, printed before it starts: `make demo` asks.

    python tests/support/download_size.py OPTIONS_OF_PIP torch==2.13.0

Standard library only. What cannot be found out is reported, and is no error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

CUDA = ("nvidia-", "cuda-", "triton")
"""names of packages that only a CUDA build of torch needs, as they begin"""
DRIVER = Path("/proc/driver/nvidia/version")


def main(words: list[str]) -> None:
    """Print the size, and what to do about a CUDA build where there is no GPU."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
    asked = subprocess.run([*command, "--report", "-", *words], capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        print("the size of the download is not known: pip could not resolve it in advance")
        return
    files = json.loads(asked.stdout)["install"]
    sizes = [size_of(file["download_info"]["url"]) for file in files]
    known = sum(size for size in sizes if size is not None)
    unknown = f", and {sizes.count(None)} of unknown size" if None in sizes else ""
    print(f"to download: {known / 1e6:,.1f} MB in {len(files)} packages{unknown} (pip's cache may have some)")
    if not DRIVER.exists() and any(file["metadata"]["name"].startswith(CUDA) for file in files):
        print("This is the CUDA build of torch, and this machine has no NVIDIA GPU. The CPU build is enough: README.md")


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
