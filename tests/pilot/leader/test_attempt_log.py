"""A log that cannot be written does not end the leader."""

from tests.support import driving


def test_a_log_that_cannot_be_written_does_not_end_the_leader(existing):
    directory = existing.directory.path
    (directory / "logs").rmdir()
    (directory / "logs").touch()
    driving.succeeds("resume", directory)
    assert len(driving.assert_each_run_measured_once(directory)) == 2
    assert "cannot write the log of" in "".join(path.read_text() for path in directory.glob("pilots/*/stderr"))
