"""Many matrices at once take `torch.optim.Muon`'s very steps."""

import torch

from redraft.train.muon import Muon, orthogonal

SHAPES = [(8, 8), (8, 8), (20, 8), (8, 20), (20, 8), (6, 4)]


def test_the_same_steps_as_one_matrix_at_a_time():
    torch.manual_seed(0)
    theirs = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    ours = [torch.nn.Parameter(one.detach().clone()) for one in theirs]
    options = {"lr": 0.02, "weight_decay": 0.1, "adjust_lr_fn": "match_rms_adamw"}
    optimizers = torch.optim.Muon(theirs, **options), Muon(ours, **options)
    for _ in range(4):
        for one, other in zip(theirs, ours, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        ours[-1].grad = theirs[-1].grad = None  # one that had no part in the loss
        for optimizer in optimizers:
            optimizer.step()
    for one, other in zip(theirs, ours, strict=True):
        torch.testing.assert_close(other, one, atol=2e-3, rtol=0)  # of steps of 0.02, in bfloat16


def test_singular_values_come_near_one():
    matrices = (
        torch.randn(3, 12, 5, generator=torch.Generator().manual_seed(0)) * torch.tensor([1e-3, 1, 50])[:, None, None]
    )
    values = torch.linalg.svdvals(orthogonal(matrices, (3.4445, -4.7750, 2.0315), 5, 1e-7).float())
    assert ((values > 0.5) & (values < 1.3)).all()
