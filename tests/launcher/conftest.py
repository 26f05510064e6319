import pytest

from tests.support.made_sweeps import made


@pytest.fixture
def existing(tmp_path):
    return made(tmp_path / "s")
