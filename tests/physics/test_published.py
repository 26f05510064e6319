"""Published MFU to compare with: quoted as printed, and the run whose model is nearest in size."""

import pytest

from sweep.physics.published import PUBLISHED, nearest


def test_published_mfu_is_as_printed():
    """arXiv 2205.05198 table 5 (A100, model FLOPs utilisation) and arXiv 2407.21783 table 4 (H100, Llama 3 405B)."""
    assert [(one.gpu, one.parameters / 1e9, one.gpus, one.mfu) for one in PUBLISHED] == [
        ("a100", 22, 8, 0.415), ("a100", 175, 64, 0.514), ("a100", 530, 280, 0.560), ("a100", 1000, 512, 0.563),
        ("h100", 405, 8192, 0.43), ("h100", 405, 16384, 0.41),
    ]  # fmt: skip


@pytest.mark.parametrize(("parameters", "found"), [
    (1e9, 22e9), (22e9, 22e9), (61e9, 22e9), (63e9, 175e9), (300e9, 175e9), (310e9, 530e9), (5e12, 1000e9),
])  # fmt: skip
def test_the_nearest_model_is_that_of_the_smallest_ratio_of_sizes(parameters, found):
    """Between 22 and 175 billion the limit is 62, between 175 and 530 it is 305."""
    assert nearest("a100", parameters).parameters == found
    assert nearest("A100", parameters).parameters == found


@pytest.mark.parametrize(("gpu", "parameters"), [("h200", 8e9), (None, 8e9), ("a100", None), ("a100", 0), ("", 8e9)])
def test_nothing_is_compared_where_no_run_on_that_gpu_was_published_or_the_size_is_unknown(gpu, parameters):
    assert nearest(gpu, parameters) is None
