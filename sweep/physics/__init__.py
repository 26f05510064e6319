"""Pure formulas: model shapes, hardware, FLOPs. Each takes numbers or numpy arrays alike."""
