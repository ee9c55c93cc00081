"""What `K80Tuner` swaps in: the fused step, its trials and their results."""
