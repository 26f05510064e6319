"""On the PYTHONPATH of one node: a reader of its is replaced, or its ranks hang."""

import os
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder

EXCHANGE = "bench_workloads.checks.exchange"


def unreadable() -> None:
    raise PermissionError("no permission to read this sensor")


def hang(*_: object) -> None:
    time.sleep(3600)


class HangingExchange(MetaPathFinder):
    """Replaces the measurement as soon as its module is imported: whether in a fork server or in a rank."""

    def find_spec(self, name, path, target=None):
        if name != EXCHANGE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.measure = hang

        spec.loader.exec_module = exec_module
        return spec


what = os.environ["DEFECT"]
if what == "exchange":
    sys.meta_path.insert(0, HangingExchange())
elif what in ("clock", "sensor"):
    from bench_workloads.checks import host

    if what == "clock":
        host.clock = lambda: time.time() + 120.0
    else:
        host.shared_memory = unreadable
