"""A sweep that exists, for tests of the parts of a pilot; and a loop of its own for each test that is a coroutine."""

import asyncio
import inspect

import pytest

from tests.support.pilot_parts import existing

__all__ = ["existing"]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
