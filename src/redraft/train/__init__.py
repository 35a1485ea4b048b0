"""Training: for now the small model of the demonstration; the paper's post-training comes to this room."""
