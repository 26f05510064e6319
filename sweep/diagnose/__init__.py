"""Why an attempt ended as it did: facts in, one outcome with its evidence and advice out. Pure."""

from sweep.diagnose.fold import diagnose, diagnose_text
from sweep.diagnose.model import Diagnosis, Facts, RankEnd

__all__ = ["Diagnosis", "Facts", "RankEnd", "diagnose", "diagnose_text"]
