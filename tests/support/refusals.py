"""What a call refuses."""

import pytest

from sweep.errors import SweepError


def mistakes_of(make, *words, **how):
    """All mistakes of the SweepError that the call ends with."""
    with pytest.raises(SweepError) as caught:
        make(*words, **how)
    return caught.value.mistakes
