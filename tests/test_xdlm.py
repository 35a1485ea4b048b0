"""XDLM's noise and its loss, against the formula of methods 5.6 written out token by token in plain Python."""

import math

import pytest
import torch

from redraft.models.standin import random_llada
from redraft.train.recipes import XDLM, parse
from redraft.train.xdlm import noise_rows, token_losses, xdlm_loss
from test_corrupt import full, seeds_of

N, M = 12, 10  # tokens, of which M is the mask


def plain_loss(logits, z, x, alpha, k):
    """methods 5.6, as it stands."""
    p = [0.0 if v == M else math.exp(value) for v, value in enumerate(logits)]
    p = [value / sum(p) for value in p]
    a, b = alpha, 1 - alpha

    def small_f(y):
        return a * N * p[y] + b * (k + N * (1 - k) * (y == M))

    def large_f(y):
        return a * N * (y == x) + b * (k + N * (1 - k) * (y == M))

    rho = k / (a * N + b * k) if z == x else 1 / b
    d = -sum(math.log(a * N * p[v] + b * k) for v in range(N)) / N
    d += (N - 1) / N * math.log(b * k) + math.log(a * N + b * k) / N
    return rho * (
        N * ((z == x) - p[z]) / small_f(z)
        - (math.log(large_f(z)) - math.log(small_f(z))) / a
        + (math.log(large_f(x)) - math.log(small_f(x)))
        + k * b / a * d
    )


def ours(logits, z, x, alpha, k):
    a = torch.full_like(logits[:, 0], alpha)
    zs, xs = torch.full_like(logits[:, 0], z).long(), torch.full_like(logits[:, 0], x).long()
    return token_losses(logits, zs, xs, a, 1 - a, k1=k, mask_id=M)[0]


@pytest.mark.parametrize("k", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.999, 0.5, 0.01])
@pytest.mark.parametrize(("z", "x"), [(M, 3), (3, 3), (5, 3), (11, 0)], ids=["masked", "kept", "replaced", "last"])
def test_loss_is_the_formulas(k, alpha, z, x):
    logits = 3 * torch.randn(20, N, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [plain_loss(row, z, x, alpha, k) for row in logits.tolist()]
    assert ours(logits, z, x, alpha, k).tolist() == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("alpha", [1e-6, 0.01, 0.5, 0.999])
def test_float32_keeps_the_digits_of_float64(alpha):
    """At a small alpha the formula as it stands loses them all in float32."""
    logits = 3 * torch.randn(200, N, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for z, x in ((M, 3), (3, 3), (5, 3)):
        exact, rounded = ours(logits, z, x, alpha, 0.1), ours(logits.float(), z, x, alpha, 0.1)
        assert rounded.dtype == torch.float32
        assert torch.allclose(rounded.double(), exact, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_certain_and_right_model_has_no_loss(dtype):
    logits = torch.zeros(1, N, dtype=dtype)
    logits[0, 3] = 200
    for alpha in (1e-6, 0.3, 0.999):
        for z in (M, 3, 5):
            assert float(ours(logits, z, 3, alpha, 0.1)) == pytest.approx(0, abs=1e-6)


def test_a_loss_is_never_negative_and_a_wrong_model_has_one():
    logits = 5 * torch.randn(500, N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for z in (M, 3, 5):
        losses = ours(logits, z, 3, 0.6, 0.1)
        assert (losses >= -1e-12).all()
        assert losses.max() > 0.1


def test_without_random_tokens_it_tends_to_lladas_bound():
    logits = torch.randn(50, N, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    allowed = logits.index_fill(-1, torch.tensor(M), -torch.inf)
    masked = ours(logits, M, 3, 0.7, 1e-9)
    assert torch.allclose(masked, -allowed.log_softmax(-1)[:, 3] / 0.3, rtol=1e-5)
    assert float(ours(logits, 3, 3, 0.7, 1e-9).abs().max()) < 1e-6


def test_the_masks_logit_counts_for_nothing():
    logits = torch.randn(4, N, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    other = logits.clone()
    other[:, M] += 50
    for z in (M, 3, 5):
        assert torch.equal(ours(logits, z, 3, 0.4, 0.1), ours(other, z, 3, 0.4, 0.1))


def test_noise_keeps_replaces_and_masks_in_its_shares():
    batch = full(torch.full((40, 2000), 3))
    tokens, alpha = noise_rows(batch, 0.3, seeds_of(40), mask_id=M, vocabulary=N)
    assert alpha.min() > 0
    assert alpha.max() < 0.999 + 1e-9
    assert len(set(alpha.tolist())) == 40
    expected_kept = alpha + 0.3 * (1 - alpha) / N  # the truth may be drawn again
    expected_masked = 0.7 * (1 - alpha) + 0.3 * (1 - alpha) / N  # and so may the mask
    for token, expected in ((3, expected_kept), (M, expected_masked)):
        shares = (tokens == token).double().mean(-1)
        assert ((shares - expected).abs() < 5 * (expected * (1 - expected) / 2000).sqrt() + 1e-9).all()
    others = torch.bincount(tokens[(tokens != 3) & (tokens != M)], minlength=N)
    drawn = others[others > 0]
    assert len(drawn) == N - 2
    assert ((drawn - drawn.double().mean()).abs() < 5 * drawn.double().mean().sqrt()).all()


def test_prompts_are_kept_and_rows_draw_alone_what_they_draw_together():
    batch = full(torch.full((5, 30), 3))
    batch.eligible[:, :9] = False
    seeds = seeds_of(5)
    together, _ = noise_rows(batch, 0.5, seeds, mask_id=M, vocabulary=N)
    assert (together[:, :9] == 3).all()
    alone, _ = noise_rows(batch.rows(slice(2, 3)), 0.5, seeds[2:3], mask_id=M, vocabulary=N)
    assert torch.equal(alone[0], together[2])


def test_the_batchs_loss_is_the_mean_over_all_its_eligible_tokens():
    model = random_llada(dtype=torch.float64)
    batch = full(torch.randint(0, 256, (3, 20), generator=torch.Generator().manual_seed(5)))
    batch.eligible[1, :7] = False
    seeds = seeds_of(3)
    loss, metrics = xdlm_loss(model, batch, XDLM(), step=0, seeds=seeds, chunk=11)
    tokens, alpha = noise_rows(batch, 0.1, seeds, mask_id=model.mask_id, vocabulary=model.vocab_size)
    logits = model.network(tokens).logits
    a = alpha[:, None].expand(-1, 20)
    each = token_losses(
        logits[batch.eligible],
        tokens[batch.eligible],
        batch.tokens[batch.eligible],
        a[batch.eligible],
        1 - a[batch.eligible],
        k1=0.1,
        mask_id=model.mask_id,
    )[0]
    assert loss.item() == pytest.approx(each.mean().item(), rel=1e-5)
    assert float(metrics.count) == 53
    draft = parse("xdlm").draft(model, batch, mask_id=model.mask_id, step=0, seeds=seeds)
    assert torch.equal(draft.tokens, tokens)
    assert float(metrics.masked) == int(draft.masked.sum())
    assert float(metrics.wrong) == int(draft.wrong.sum())
