import pytest

from sweep.store.directory import SweepDir


@pytest.fixture
def sweep(tmp_path):
    """The directory of a sweep of which nothing is written yet."""
    directory = SweepDir(tmp_path / "s")
    directory.create_skeleton()
    return directory
