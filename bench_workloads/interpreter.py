"""How this project starts its own processes: with the import path of an installed command.

`python -m` puts the working directory before all else: a file psutil.py where a sweep was launched would be imported by
its pilots.
"""

from __future__ import annotations

import sys
from pathlib import Path

INSTALLED_ONLY = "import sys; sys.path[:] = filter(None, sys.path)"
"""code that takes the working directory off the import path of `python -c`"""
_RUN = "sys.path.append({root!r}); del sys.argv[0]; import runpy; runpy.run_module(sys.argv[0], None, '__main__', True)"


def module_command(module: str, *words: str, python: str = sys.executable, options: tuple[str, ...] = ()) -> list[str]:
    """The argument list that runs a module as `python OPTIONS -m MODULE WORDS` does."""
    root = str(Path(__file__).parents[1])  # last: where sweep is in a checkout that is not installed
    return [python, *options, "-c", f"{INSTALLED_ONLY}; {_RUN.format(root=root)}", module, *words]
