"""SCOPE's loss against a plain one on full logits, and everything it must not depend on or change."""

import copy
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from redraft.models.rows import Rows
from redraft.models.standin import random_dream, random_llada
from redraft.train.ask import ask, evaluating, flat, innermost, mask_of, token_cross_entropy
from redraft.train.batch import Batch, row_uniform
from redraft.train.corrupt import hide, self_commit
from redraft.train.metrics import Metrics
from redraft.train.recipes import RECIPES, Recipe, Scope, parse
from redraft.train.scope import make_draft, mdm_loss, mdm_masks, scope_loss, supervised
from test_corrupt import full

TOKENS = torch.randint(0, 256, (4, 40), generator=torch.Generator().manual_seed(0))
ALWAYS = Scope(self_condition=1.0)
NEVER = Scope(self_condition=0.0)
SEEDS = full(TOKENS).seeds(3)  # the coins of these rows differ
VARIANTS = [
    "scope",
    "scope(self_condition=1.0)",
    "scope(focus=False)",
    "scope(commit=random, rounds=2)",
    "scope(context=clean, temperature=0, share='uniform(0.1,0.8)')",
    "scope(share='linear(0.1,0.8)', rates='uniform(0.2,0.9)', exact=True)",
    "mdm",
    "mdm(weight=inv_t, rates='uniform(0,1)')",
    "xdlm(k1=0.3)",
]


@pytest.fixture(scope="module", params=[random_llada, random_dream], ids=["llada", "dream"])
def model(request):
    return request.param(dtype=torch.float64)


@pytest.fixture(scope="module")
def llada():
    return random_llada(dtype=torch.float64)


def gradients(model, loss):
    parameters = [parameter for parameter in model.network.parameters() if parameter.requires_grad]
    return [
        torch.zeros_like(parameter) if gradient is None else gradient
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True
        )
    ]


def close(one, other, tolerance=1e-10):
    return all(torch.allclose(a, b, rtol=0, atol=tolerance) for a, b in zip(one, other, strict=True))


def loss_of(model, batch, recipe, seeds=None, **options):
    recipe = parse(recipe) if isinstance(recipe, str) else recipe
    seeds = batch.seeds(3) if seeds is None else seeds
    return recipe.loss(model, batch, step=2, steps=10, seeds=seeds, **options)


def ragged():
    """Prompts of several lengths, and padding on the right."""
    eligible, attend = torch.ones_like(TOKENS, dtype=torch.bool), torch.ones_like(TOKENS, dtype=torch.bool)
    for row, (prompt, length) in enumerate([(3, 40), (0, 31), (12, 25), (1, 38)]):
        eligible[row, :prompt] = False
        eligible[row, length:] = False
        attend[row, length:] = False
    return Batch(TOKENS, eligible, attend, torch.tensor([5, 900, 2, 31]))


# --- the number itself ---


@pytest.mark.parametrize("focus", [True, False])
@pytest.mark.parametrize("batch", [full(TOKENS), ragged()], ids=["full", "ragged"])
def test_loss_and_gradients_are_those_of_the_plain_full_logits_step(model, batch, focus):
    """Methods 3.2 once more, on whole logits, in the words of the paper's pseudocode."""
    recipe, seeds = Scope(self_condition=1.0, focus=focus), batch.seeds(3)
    loss, _ = scope_loss(model, batch, recipe, step=0, seeds=seeds, chunk=7)

    hidden = hide(batch, recipe.rates, seeds)
    with torch.no_grad():
        masked = batch.tokens.masked_fill(hidden, model.mask_id)
        confidence = model.network(masked, attention_mask=batch.attend).logits
        confidence[..., model.mask_id] = -torch.inf
        confidence = confidence.softmax(-1).amax(-1).masked_fill(~hidden, 0)
    draft = self_commit(model, batch.tokens, hidden, model.mask_id, recipe=recipe, seeds=seeds, attend=batch.attend)
    for row in range(len(batch.tokens)):
        k = max(1, int(0.3 * int(hidden[row].sum())))
        assert set(draft.committed[row].nonzero().flatten().tolist()) == set(confidence[row].topk(k).indices.tolist())
    logits = model.network(draft.tokens, attention_mask=batch.attend).logits
    where = hidden if focus else batch.eligible
    plain = F.cross_entropy(logits[where], batch.tokens[where])
    assert loss.item() == pytest.approx(plain.item(), abs=1e-10)
    # The same gradients: none can have come through the guesses, which are given here.
    assert close(gradients(model, loss), gradients(model, plain))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("chunk", [None, 1, 16, 1000])
def test_chunked_cross_entropy_is_the_whole_one(model, checkpointing, chunk):
    where = torch.rand(TOKENS.shape, generator=torch.Generator().manual_seed(1)) < 0.4
    network = copy.deepcopy(model.network).train()
    if checkpointing:
        network.activation_checkpointing_enable({"use_reentrant": False})
    index = flat(where)
    (losses,) = ask(network, TOKENS, None, index, token_cross_entropy, (TOKENS.flatten()[index],), chunk)
    plain = F.cross_entropy(network(TOKENS).logits[where], TOKENS[where], reduction="none")
    assert torch.allclose(losses, plain, rtol=0, atol=1e-10)
    weights = torch.linspace(0.5, 2, len(index), dtype=torch.float64)
    parameters = list(network.parameters())
    ours = torch.autograd.grad((losses * weights).sum(), parameters)
    assert close(ours, torch.autograd.grad((plain * weights).sum(), parameters))


def test_logits_are_not_kept_for_the_backward_pass(llada):
    def rows_of_kept_logits(chunk):
        kept = []

        def weigh(saved):
            if saved.shape[-1:] == (264,):
                kept.append(saved.numel() // 264)
            return saved

        with torch.autograd.graph.saved_tensors_hooks(weigh, lambda saved: saved):
            loss_of(llada, full(TOKENS), ALWAYS, chunk=chunk)
        return kept

    assert rows_of_kept_logits(8) == []
    assert max(rows_of_kept_logits(None)) == supervised(full(TOKENS), ALWAYS, SEEDS)  # one chunk: nothing to save


def test_without_self_conditioning_it_is_the_plain_masked_loss(model):
    batch, seeds = ragged(), ragged().seeds(3)
    loss, metrics = loss_of(model, batch, NEVER)
    hidden = hide(batch, "beta(2,2)", seeds)
    logits = model.network(batch.tokens.masked_fill(hidden, model.mask_id), attention_mask=batch.attend).logits
    assert loss.item() == pytest.approx(F.cross_entropy(logits[hidden], batch.tokens[hidden]).item(), abs=1e-10)
    assert close([loss], [loss_of(model, batch, "mdm")[0]])
    assert metrics.summary()["committed"] == metrics.summary()["self_conditioned"] == 0


def test_inv_t_is_lladas_bound(llada):
    """GUIDELINES.md of ML-GSAI/LLaDA: t ~ U(0,1), p = (1 - eps) t + eps, sum of CE / p over rows x length."""
    batch = full(TOKENS)
    recipe = parse("mdm(weight=inv_t, rates='uniform(0,1)')")
    draft = recipe.draft(llada, batch, mask_id=llada.mask_id, step=0, seeds=SEEDS)
    loss, metrics = recipe.loss(llada, batch, step=0, seeds=SEEDS)
    p = (1 - 1e-3) * row_uniform(SEEDS, "rate") + 1e-3
    logits = llada.network(draft.tokens).logits
    total = 0.0
    for row in range(4):
        for column in range(40):
            if draft.masked[row, column]:
                total += F.cross_entropy(logits[row, column], TOKENS[row, column]).item() / float(p[row])
    assert loss.item() == pytest.approx(total / (4 * 40), rel=1e-6)
    assert float(metrics.count) == 4
    # Answers of several lengths: each row's sum over its own length, then the mean of rows.
    batch = ragged()
    draft = recipe.draft(llada, batch, mask_id=llada.mask_id, step=0, seeds=SEEDS)
    losses = F.cross_entropy(
        llada.network(draft.tokens, attention_mask=batch.attend).logits.transpose(1, 2), TOKENS, reduction="none"
    )
    rows = (losses * draft.masked).sum(-1) / (p * batch.eligible.sum(-1))
    loss, _ = recipe.loss(llada, batch, step=0, seeds=SEEDS)
    assert loss.item() == pytest.approx(rows.mean().item(), rel=1e-6)


def test_inv_t_is_unbiased_for_short_rows_too():
    """With CE = 1 everywhere the bound is 1 in the mean; a mask forced on rows that drew none would add a third."""
    rows = 4000
    batch = full(torch.zeros(rows, 4, dtype=torch.int64))
    hidden, weights = mdm_masks(
        batch, parse("mdm(weight=inv_t, rates='uniform(0,1)')"), batch.seeds(0), step=0, steps=1
    )
    assert not hidden.any(-1).all()
    assert float((hidden.sum(-1) * weights).mean()) == pytest.approx(1, abs=0.1)


def test_learning_from_scratch_masks_at_any_rate():
    """Without the clamp, whole rows of masks and rows of hardly one are seen; counted ahead as they are drawn."""
    batch = full(torch.zeros(500, 200, dtype=torch.int64))
    shares = {}
    for clamp in (True, False):
        recipe = parse(f"mdm(rates='uniform(0,1)', clamp={clamp})")
        hidden, weights = mdm_masks(batch, recipe, batch.seeds(0), step=0, steps=1)
        shares[clamp] = hidden.double().mean(-1)
        assert weights is None
        assert int(hidden.sum()) == supervised(batch, recipe, batch.seeds(0), steps=1)
    assert float((shares[False] < 0.05).double().mean()) == pytest.approx(0.05, abs=0.025)
    assert float((shares[False] > 0.95).double().mean()) == pytest.approx(0.05, abs=0.025)
    assert not ((shares[True] < 0.02) | (shares[True] > 0.98)).any()


def test_a_batch_that_masks_nothing_has_a_loss_of_0_with_gradients(llada):
    batch = full(TOKENS[:1, :1])
    recipe = parse("mdm(weight=inv_t, rates=0)")
    loss, _ = recipe.loss(llada, batch, step=0, seeds=batch.seeds(0))
    assert loss.item() == 0
    assert all((gradient == 0).all() for gradient in gradients(llada, loss))


# --- what it must not depend on ---


@pytest.mark.parametrize("text", VARIANTS)
@pytest.mark.parametrize("sizes", [[1, 1, 1, 1], [2, 2], [3, 1]], ids=str)
def test_any_split_into_micro_batches_has_the_same_loss_and_gradients(llada, text, sizes):
    batch = ragged()
    seeds, recipe = batch.seeds(3), parse(text)
    count = supervised(batch, recipe, seeds, step=2, steps=10)
    whole, metrics = loss_of(llada, batch, recipe)
    assert float(metrics.count) == count
    expected = gradients(llada, whole)
    sums, losses, first, total = [0.0] * len(expected), [], 0, None
    for size in sizes:
        part = batch.rows(slice(first, first + size))
        loss, some = loss_of(llada, part, recipe, seeds[first : first + size], count=count)
        sums = [one + other for one, other in zip(sums, gradients(llada, loss), strict=True)]
        losses.append(loss.item())
        total = some if total is None else total + some
        first += size
    assert sum(losses) == pytest.approx(whole.item(), abs=1e-11)
    assert close(sums, expected)
    assert torch.allclose(total.pack(), metrics.pack(), rtol=1e-5)


@pytest.mark.parametrize("text", VARIANTS)
def test_padding_changes_nothing(llada, text):
    batch = full(TOKENS)
    wider = torch.full((4, 9), llada.pad_id)
    real = F.pad(torch.ones_like(TOKENS, dtype=torch.bool), (0, 9), value=False)
    padded = Batch(torch.cat([TOKENS, wider], 1), real, real, batch.indices)
    one, _ = loss_of(llada, batch, text)
    other, _ = loss_of(llada, padded, text)
    assert one.item() == pytest.approx(other.item(), abs=1e-11)
    assert close(gradients(llada, one), gradients(llada, other))


def test_what_is_neither_committed_nor_masked_is_no_target(llada):
    batch = full(TOKENS)
    where = torch.zeros_like(batch.eligible)
    hidden = hide(batch, "beta(2,2)", SEEDS)
    where[hidden] = True
    index = flat(where)

    def loss(targets):
        seen = TOKENS.masked_fill(hidden, llada.mask_id)
        return ask(llada, seen, None, index, token_cross_entropy, (targets.flatten()[index],))[0].mean()

    other = torch.where(where, TOKENS, (TOKENS + 1) % 256)
    assert torch.equal(loss(TOKENS), loss(other))
    assert loss(TOKENS).item() == pytest.approx(loss_of(llada, batch, NEVER, SEEDS)[0].item())
    assert not torch.equal(loss(TOKENS), loss((TOKENS + 1) % 256))


@pytest.mark.parametrize("text", VARIANTS)
def test_nothing_is_drawn_from_the_global_generator(llada, text):
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        loss, _ = loss_of(llada, full(TOKENS), text, chunk=9)
        results.append(gradients(llada, loss))
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_seeds_decide(llada):
    batch = full(TOKENS)
    assert torch.equal(loss_of(llada, batch, "scope")[0], loss_of(llada, batch, "scope")[0])
    assert not torch.equal(loss_of(llada, batch, "scope")[0], loss_of(llada, batch, "scope", batch.seeds(4))[0])


def test_coins_are_fair_and_each_rows_own(llada):
    batch = full(torch.zeros(600, 2, dtype=torch.int64))
    draft = make_draft(llada, batch, Scope(self_condition=0.25), mask_id=llada.mask_id, step=0, seeds=batch.seeds(0))
    assert float(draft.conditioned.double().mean()) == pytest.approx(0.25, abs=0.07)
    assert not draft.committed[~draft.conditioned].any()
    assert draft.committed[draft.conditioned].any(-1).all()


# --- what it must not change ---


def test_the_self_prediction_is_in_evaluation_mode_and_modes_are_restored(llada):
    network = copy.deepcopy(llada.network).train()
    network.model.transformer.wte.eval()  # a part that its owner froze
    before = [part.training for part in network.modules()]
    modes = []
    network.model.transformer.blocks[0].register_forward_hook(
        lambda part, *_: modes.append((part.training, torch.is_grad_enabled()))
    )
    loss_of(network, full(TOKENS), ALWAYS)
    assert modes == [(False, False), (True, True)]
    assert [part.training for part in network.modules()] == before
    with pytest.raises(RuntimeError, match="boom"), evaluating(network):
        raise RuntimeError("boom")
    assert [part.training for part in network.modules()] == before


def test_dropout_is_off_in_the_self_prediction_only(llada):
    class Dropped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.dropout = inner, torch.nn.Dropout(0.5)

        def forward(self, x):
            return self.dropout(self.inner(x))

    network = copy.deepcopy(llada.network).train()
    network.model.transformer.blocks[0].attn_out = Dropped(network.model.transformer.blocks[0].attn_out)
    drafts = [
        make_draft(network, full(TOKENS), ALWAYS, mask_id=llada.mask_id, step=0, seeds=SEEDS).tokens for _ in range(2)
    ]
    assert torch.equal(*drafts)
    losses = [loss_of(network, full(TOKENS), ALWAYS)[0] for _ in range(2)]
    assert not torch.equal(*losses)


def test_parameters_batch_and_requirement_of_gradients_stay(llada):
    batch = ragged()
    before, kept = [p.clone() for p in llada.network.parameters()], copy.deepcopy(batch)
    loss, metrics = loss_of(llada, batch, "scope(rounds=2)")
    loss.backward()
    llada.network.zero_grad()
    assert all(torch.equal(one, other) for one, other in zip(before, llada.network.parameters(), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(batch, kept, strict=True))
    assert not any(value.requires_grad for value in vars(metrics).values())


# --- forward calls ---


def calls_of(network, batch, recipe, **options):
    rows = []
    hook = innermost(network).register_forward_pre_hook(
        lambda _, args, kwargs: rows.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    loss_of(network, batch, recipe, **options)
    hook.remove()
    return rows


def test_only_rows_that_drew_heads_cost_a_second_pass(llada):
    batch = full(TOKENS)
    draft = make_draft(llada, batch, Scope(), mask_id=llada.mask_id, step=0, seeds=batch.seeds(3))
    heads = int(draft.conditioned.sum())
    assert 0 < heads < 4
    assert calls_of(llada, batch, Scope()) == [heads, 4]
    tails = batch.rows(~draft.conditioned)
    assert calls_of(llada, tails, Scope()) == [4 - heads]
    assert calls_of(llada, tails, Scope(rounds=3), lockstep=True) == [1, 1, 1, 4 - heads]
    assert calls_of(llada, tails, NEVER, lockstep=True) == [4 - heads]
    one, other = (loss_of(llada, tails, Scope(), lockstep=lockstep)[0] for lockstep in (False, True))
    assert torch.equal(one, other)


# --- wrappers ---


def test_gradients_are_on_the_adapter_only_and_the_guesses_are_the_adapters_own(llada):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    network = get_peft_model(
        copy.deepcopy(llada.network), LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "k_proj", "v_proj"])
    ).train()
    assert mask_of(network) == llada.mask_id
    loss, _ = loss_of(network, full(TOKENS), ALWAYS)
    loss.backward()
    trained = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in network.named_parameters() if "lora_" in name}
    assert len(trained) == 2 * 3 * 2
    assert loss.item() == pytest.approx(loss_of(llada, full(TOKENS), ALWAYS)[0].item())  # B is still 0
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=3.0)
    options = {"mask_id": llada.mask_id, "step": 0, "seeds": SEEDS}
    adapted = make_draft(network, full(TOKENS), ALWAYS, **options)
    merged = make_draft(copy.deepcopy(network).merge_and_unload(), full(TOKENS), ALWAYS, **options)
    assert torch.equal(adapted.tokens, merged.tokens)
    assert not torch.equal(adapted.tokens, make_draft(llada, full(TOKENS), ALWAYS, **options).tokens)


@pytest.mark.parametrize(("targets", "count"), [("paper", 50_331_648), ("qkvo", 67_108_864)])
def test_the_papers_adapter_on_the_8b_has_its_count(targets, count):
    from redraft.models.adapters import Lora, adapt
    from redraft.models.llada.configuration import LLaDAConfig
    from redraft.models.llada.modeling import LLaDAForMaskedLM

    with torch.device("meta"):
        network, counted = adapt(LLaDAForMaskedLM(LLaDAConfig()), Lora(targets=targets))
    trained = {name: p.numel() for name, p in network.named_parameters() if p.requires_grad}
    assert all("lora_" in name for name in trained)
    assert sum(trained.values()) == counted.trainable == count


def test_ddp_takes_part(llada, tmp_path):
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(copy.deepcopy(llada.network).train())
        loss, _ = loss_of(wrapped, full(TOKENS), ALWAYS, chunk=16)
        loss.backward()
        expected = gradients(llada, loss_of(llada, full(TOKENS), ALWAYS)[0])
        assert close([parameter.grad for parameter in wrapped.module.parameters()], expected)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("text", VARIANTS)
def test_bfloat16_weights_and_autocast_give_a_float32_loss(text):
    for model, autocast in ((random_llada(dtype=torch.bfloat16), False), (random_llada(), True)):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, _ = loss_of(model, full(TOKENS), text)
        assert loss.dtype == torch.float32
        loss.backward()
        exact = loss_of(random_llada(dtype=torch.float64), full(TOKENS), text)[0]
        assert loss.item() == pytest.approx(exact.item(), rel=0.1)


def test_autocast_does_not_reuse_what_the_pass_without_gradients_cast():
    """Its cache of lowered weights would hand the second pass weights that have no gradient."""
    network = random_llada().network
    options = {"step": 0, "seeds": SEEDS}
    with torch.autocast("cpu", torch.bfloat16):
        scope_loss(network, full(TOKENS), ALWAYS, **options)[0].backward()
        assert torch.is_autocast_cache_enabled()
    lost = [name for name, parameter in network.named_parameters() if parameter.grad is None]
    assert lost == []


def test_rows_treat_each_position_by_itself(model):
    index = torch.tensor([0, 1, 39, 40, 41, 159])
    with torch.no_grad():
        whole = model.network(TOKENS).logits.flatten(0, 1)[index]
        for chunk in (None, 2):
            rows = Rows(index, lambda logits, number: (logits, number + 1), (index,), chunk)
            logits, numbers = model.network(TOKENS, rows=rows)
            assert torch.allclose(logits, whole, rtol=0, atol=1e-12)
            assert torch.equal(numbers, index + 1)


# --- metrics ---


def test_metrics_say_what_happened(llada):
    batch = full(TOKENS)
    recipe = Scope(focus=False, temperature=0.5)
    draft = make_draft(llada, batch, recipe, mask_id=llada.mask_id, step=0, seeds=SEEDS)
    loss, metrics = scope_loss(llada, batch, recipe, step=0, seeds=SEEDS)
    with torch.no_grad():
        losses = F.cross_entropy(llada.network(draft.tokens).logits.transpose(1, 2), TOKENS, reduction="none")
    right, seen = draft.committed & ~draft.wrong, ~(draft.committed | draft.masked)
    summary = metrics.summary()
    assert summary["loss"] == pytest.approx(loss.item(), rel=1e-5)
    for name, kind in (("wrong", draft.wrong), ("right", right), ("masked", draft.masked), ("context", seen)):
        expected = float(losses[kind].mean()) if kind.any() else None
        assert summary[f"loss_{name}"] == (None if expected is None else pytest.approx(expected, rel=1e-5))
    assert summary["committed"] == int(draft.committed.sum())
    assert summary["error_rate"] == pytest.approx(float(draft.wrong.sum() / draft.committed.sum()))
    assert summary["self_conditioned"] == int(draft.conditioned.sum())
    assert summary["rows"] == 4
    assert (metrics + metrics).summary()["loss"] == pytest.approx(summary["loss"])
    assert Metrics.unpack(metrics.pack()).summary() == summary


def test_the_temperature_given_wins_over_the_recipes(llada):
    options = {"mask_id": llada.mask_id, "step": 0, "seeds": SEEDS}
    cold = make_draft(llada, full(TOKENS), Scope(temperature=0, self_condition=1), **options)
    assert torch.equal(make_draft(llada, full(TOKENS), ALWAYS, temperature=0, **options).tokens, cold.tokens)
    assert not torch.equal(make_draft(llada, full(TOKENS), ALWAYS, **options).tokens, cold.tokens)


def test_end_of_text_is_never_committed_where_that_is_said():
    model = random_llada(dtype=torch.float64)  # its own: it is changed
    with torch.no_grad():
        model.network.get_output_embeddings().weight[list(model.eos_ids)] *= 20  # the surest at many positions
    batch, recipe = full(TOKENS), Scope(self_condition=1.0, rates=0.5)
    end_of_text = torch.tensor(model.eos_ids[:1])

    def drafts(recipe):
        """By a model, as a preview asks, and by its network alone, as training does."""
        options = {"mask_id": model.mask_id, "step": 0, "seeds": batch.seeds(0)}
        return [make_draft(asked, batch, recipe, **options) for asked in (model, model.network)]

    like_any_other, never = drafts(recipe), drafts(replace(recipe, eos="confidence"))
    for by_model, by_network in (like_any_other, never):
        assert torch.equal(by_model.tokens, by_network.tokens)
    for draft, committed in ((like_any_other[0], True), (never[0], False)):
        assert draft.committed.any()
        assert torch.isin(draft.tokens[draft.committed], end_of_text).any() == committed


def test_every_recipe_has_a_loss_a_count_and_a_draft(llada):
    batch = ragged()
    for name in RECIPES:
        recipe = parse(name)
        assert isinstance(recipe, Recipe)
        draft = recipe.draft(llada, batch, mask_id=llada.mask_id, step=0, seeds=SEEDS)
        assert torch.equal(draft.tokens[~batch.eligible], TOKENS[~batch.eligible])
        assert (draft.tokens[draft.masked] == llada.mask_id).all()
        loss, metrics = recipe.loss(llada, batch, step=0, seeds=SEEDS)
        assert float(metrics.count) == supervised(batch, recipe, SEEDS)
        assert torch.isfinite(loss)
    assert mdm_loss(llada, batch, parse("mdm"), step=0, seeds=SEEDS)[0] > 0


def test_training_teaches_to_overwrite_wrong_commits():
    """The point of it all, on rows of one repeated token. Guessing among the four would cost ln 4 = 1.39."""
    model = random_llada()
    tokens = (torch.arange(8)[:, None] % 4).expand(8, 16).clone()
    optimizer = torch.optim.AdamW(model.network.parameters(), lr=5e-3)
    wrong = []
    for step in range(60):
        batch = full(tokens, first=8 * step)
        loss, metrics = scope_loss(model, batch, ALWAYS, step=step, seeds=batch.seeds(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        wrong.append(metrics.summary()["loss_wrong"] or 0.0)
    assert wrong[0] > 4
    assert sum(wrong[-5:]) / 5 < 0.7
