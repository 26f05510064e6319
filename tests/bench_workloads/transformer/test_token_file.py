"""Tokens of a real file: every layout reads the same ones, in the same training, and a step includes the reading."""

from unittest.mock import Mock, call

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bench_workloads.transformer.data import (  # noqa: E402
    FileBatches,
    Share,
    TokenFile,
    TokenFileError,
    in_turn,
)
from bench_workloads.transformer.settings import Settings  # noqa: E402
from tests.support.ranks.harness import ForkServer, a_run  # noqa: E402
from tests.support.transformer.cases import case  # noqa: E402

VOCABULARY, LENGTH = 256, 64


@pytest.fixture
def path(tmp_path):
    """1,000 sequences of 64 tokens, and the token that follows the last one."""
    path = tmp_path / "tokens.bin"
    np.random.default_rng(1).integers(VOCABULARY, size=1000 * LENGTH + 1, dtype=np.uint16).tofile(path)
    return path


def share(vocabulary: int = VOCABULARY) -> Share:
    return Share(7, vocabulary, LENGTH, 4, slice(0, 4), torch.arange(LENGTH))


def batches(path, part: Share) -> FileBatches:
    return FileBatches(Settings(data=str(path), data_dtype="uint16"), part)


def test_targets_are_the_tokens_that_follow_in_the_file(path):
    tokens, targets = batches(path, share())(0)
    assert tokens.dtype == targets.dtype == torch.int64
    assert tokens.shape == targets.shape == (4, LENGTH)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    text = np.fromfile(path, dtype=np.uint16).tobytes()
    for row, last in zip(tokens, targets[:, -1], strict=True):
        assert np.array([*row.tolist(), last], dtype=np.uint16).tobytes() in text


def test_each_iteration_has_its_own_batch_and_any_can_be_read_again(path):
    source = batches(path, share())
    first = [source(number)[0] for number in range(3)]
    assert not torch.equal(first[0], first[1])
    assert torch.equal(source(1)[0], first[1]), "another order starts from there"
    assert torch.equal(source(2)[0], first[2])
    assert torch.equal(source(2)[0], first[2])


def test_a_file_that_cannot_feed_the_model_is_named(path, tmp_path):
    with pytest.raises(TokenFileError, match=r"tokens.bin: token \d+, but the model's vocabulary has 16"):
        batches(path, share(vocabulary=16))(0)
    short = tmp_path / "short.bin"
    short.write_bytes(b"\0" * 2 * LENGTH)
    with pytest.raises(TokenFileError, match=r"short.bin: 128 bytes are no 65 or more tokens of uint16"):
        TokenFile(short, "uint16", share())
    with pytest.raises(FileNotFoundError, match=r"none\.bin"):
        TokenFile(tmp_path / "none.bin", "uint16", share())


def test_layouts_train_the_same_on_a_file_and_record_what_reading_costs(fork_server: ForkServer, path):
    """One rank that reads for itself, two with a worker each, and halves of a sequence."""
    found = []
    for words, workers in (("dp=1", 0), ("dp=2 zero=3", 1), ("cp=2", 0)):
        params = {"data": str(path), "data_workers": workers}
        ranks = fork_server.attempt(a_run(case(words).layout, params=params))
        assert [rank.exit for rank in ranks] == [0] * len(ranks), ranks[0].stderr
        found.append(ranks[0].measurement)
    synthetic = fork_server.attempt(a_run(case("dp=1").layout))[0].measurement
    for measured in found[1:]:
        assert measured["losses"] == pytest.approx(found[0]["losses"], rel=1e-6)
    assert found[0]["losses"][0] != pytest.approx(synthetic["losses"][0], rel=1e-4)
    for measured in found:
        times, steps = measured["extra"]["data_times_s"], measured["step_times_s"]
        assert all(0 < read < step for read, step in zip(times, steps, strict=True))


def test_a_file_is_read_within_the_step_and_not_ahead_of_it():
    source = Mock(part_of_step=True)
    pending = in_turn(source, range(2))
    assert source.mock_calls == [], "nothing is read ahead of the step"
    next(pending)
    assert source.mock_calls == [call(0)]
