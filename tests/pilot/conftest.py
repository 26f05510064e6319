"""For tests of the parts of a pilot: a sweep that exists, programs, and a loop for each test that is a coroutine."""

import asyncio
import inspect
import subprocess

import pytest

from tests.support.pilot_parts import existing

__all__ = ["existing"]


@pytest.fixture
def running():
    """Starts a program, which is killed when the test ends."""
    started = []

    def start(*command, **how):
        started.append(subprocess.Popen(command, **how))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
