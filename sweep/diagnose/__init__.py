"""Why an attempt ended as it did: facts in, one outcome with its evidence and advice out. Pure."""
