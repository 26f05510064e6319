"""Routing that the layout states instead of the router: which experts each position of a sequence goes to.

By position alone, so that the same tokens go to the same experts in every layout, and each router still learns: its
scores weigh the experts' outputs.
"""

from __future__ import annotations

import torch
from torch import Tensor


def experts_of(routing: str, layer: int, sequence_length: int, experts: int, per_token: int) -> Tensor | None:
    """(sequence, per_token) numbers of experts; None where the router chooses.

    ``balanced``: in turn. ``skewed:S``: drawn without replacement, the first with a probability proportional to
    1 / rank^S (Zipf), by the largest of log-probabilities with Gumbel noise (Kool et al. 2019, arXiv 1903.06059); which
    expert has which rank differs by layer.
    """
    if routing == "natural":
        return None
    if routing == "balanced":
        return torch.arange(sequence_length * per_token).view(sequence_length, per_token) % experts
    exponent = float(routing.partition(":")[2])
    generator = torch.Generator().manual_seed(layer)
    ranks = 1 + torch.randperm(experts, generator=generator)
    noise = -torch.log(torch.empty(sequence_length, experts).exponential_(generator=generator))
    return (noise - exponent * torch.log(ranks.float())).topk(per_token, dim=-1).indices
