"""The job side: a leader measures runs through the agents of its nodes; agents start ranks, watch and clear them."""
