"""`diverge` against planted differences: step, phase, tensor, element and ulps, or what was edited.

Also the trail itself: its sums by hand, its chain.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from resablate import diverge, trail
from resablate.dropout import Masks
from resablate.progress import Progress
from toys import toy_trainer


def one_ulp(tensor, *index):
    """Move one element up by one ulp."""
    tensor[index] = torch.nextafter(tensor[index], torch.tensor(torch.inf))


class Planter:
    """A toy run in which something is done to a phase of a step."""

    def __init__(self, folder, **changes):
        self.trainer = toy_trainer(folder, **({"eval_interval": 1, "steps": 6} | changes))

    def after_update(self, step, plant):
        update = self.trainer.update

        def changed(*args):
            update(*args)
            if self.trainer.step == step:
                plant(self.trainer.optimiser.parameters)

        self.trainer.update = changed
        return self

    def in_backward(self, step, plant):
        """Plant in the gradients, before they are noted."""
        gradient = self.trainer.gradient

        def changed(note=None):
            def first(phase, tensors):
                if phase == "backward" and self.trainer.step == step:
                    plant(tensors)
                note(phase, tensors)

            return gradient(first if note else None)

        self.trainer.gradient = changed
        return self

    def in_batch(self, step, plant):
        tokens, draw = self.trainer.tokens, self.trainer.tokens.train_batch

        def changed(seed, position, size):
            batch = draw(seed, position, size)
            if position == step:
                plant(batch)
            return batch

        tokens.train_batch = changed
        return self

    def lines(self):
        run = self.trainer.run
        self.trainer.train(Progress("toy", run.steps, 0, 1), Path("unused"))
        return trail.parse(self.trainer.trail.text(run.steps, "finished"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    return Planter(tmp_path_factory.mktemp("toy")).lines()


def first_difference(a, b):
    found = diverge.compare(a, b)
    assert found.agreeing > 0
    return found.first


# -- the trail -------------------------------------------------------------------------------------


def test_ordered_values_are_an_ulp_apart():
    tiny = np.float32(1e-45)  # the smallest
    values = np.array([-tiny, -0.0, 0.0, tiny, 1.0, np.nextafter(np.float32(1), 2)], np.float32)
    one = 127 << 23
    assert trail.ordered(values).tolist() == [-2, -1, 0, 1, one, one + 1]
    assert trail.ordered(np.array([3, -4])).tolist() == [3, -4]


def test_sums_are_exact_beyond_a_chunk():
    values = np.random.default_rng(1).integers(-(2**31), 2**31, trail.CHUNK * 2 + 77)
    numbers = values.tolist()
    expected = [sum(i**power * v for i, v in enumerate(numbers)) % 2**64 for power in range(3)]
    assert trail.sums(values) == tuple(expected)


def test_a_step_has_all_phases_in_causal_order(straight):
    step = [(line.phase, line.tensor) for line in straight if line.step == "3"]
    phases = list(dict.fromkeys(phase for phase, _ in step))
    assert phases == ["weights", "data", "forward", "backward"]
    forward = [tensor for phase, tensor in step if phase == "forward"]
    assert forward == ["embedding", "blocks.0", "blocks.1", "loss"]
    assert step.count(("data", "tokens.0")) == step.count(("data", "targets.0")) == 1
    weights = [tensor for phase, tensor in step if phase == "weights"]
    assert weights == [tensor for phase, tensor in step if phase == "backward"]
    assert len(weights) == 28


def test_the_trail_describes_the_training_step(tmp_path):
    trainer = toy_trainer(tmp_path, accumulation=2)
    lines = []
    loss, _ = trainer.gradient(lambda phase, tensors: lines.append((phase, dict(tensors))))
    phases = [phase for phase, _ in lines]
    assert phases == ["weights", "data", "data", "forward", "forward", "backward"]
    assert lines[4][1]["loss"].item() == loss.item()
    batch = trainer.tokens.train_batch(3, 1, 4)
    assert torch.equal(lines[2][1]["targets.1"], batch.targets)
    masks = Masks(trainer.run, 3, 1, trainer.device)
    hidden = trainer.model(batch.tokens, masks).hidden
    assert all(map(torch.equal, lines[3][1].values(), hidden))


@pytest.mark.parametrize("number", [2, 40, -2, -1])
def test_an_edited_or_removed_line_breaks_the_chain(straight, number):
    text = "\n".join([trail.HEADER, *(",".join(line) for line in straight), ""])
    assert trail.parse(text) == straight
    lines = text.split("\n")[:-1]
    body = lines[number]
    removed = [*lines]
    del removed[number]
    with pytest.raises(trail.BrokenError):
        trail.parse("\n".join(removed))
    lines[number] = body.replace(",", ",1", 1)
    with pytest.raises(trail.BrokenError, match=f"line {number % len(lines) + 1} or"):
        trail.parse("\n".join(lines))


# -- planted differences ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("wte", (0, 0)),
        ("wpe", (7, 15)),
        ("blocks.0.ln_1.weight", (3,)),
        ("blocks.1.attn.qkv.weight", (47, 2)),
        ("blocks.1.ffn.down.bias", (15,)),
    ],
)
@pytest.mark.parametrize("step", [1, 4])
def test_one_ulp_in_a_weight_is_named(tmp_path, straight, name, index, step):
    planted = Planter(tmp_path).after_update(step, lambda p: one_ulp(p[name].data, *index))
    first = first_difference(straight, planted.lines())
    assert (first.step, first.since, first.phase, first.tensor) == (step, step - 1, "update", name)
    assert (first.ulps, first.element, first.differing, first.of) == (1, [*index], 1, 28)


def test_one_ulp_at_the_start_is_named(tmp_path, straight):
    planted = Planter(tmp_path)
    one_ulp(planted.trainer.optimiser.parameters["blocks.0.attn.proj.weight"].data, 1, 2)
    found = diverge.compare(planted.lines(), straight)
    assert (found.first.phase, found.first.layer, found.agreeing) == ("init", "block 0", 6)
    assert (found.first.ulps, found.first.element, found.first.since) == (-1, [1, 2], None)


def test_one_ulp_in_a_gradient_is_named(tmp_path, straight):
    planted = Planter(tmp_path).in_backward(3, lambda g: one_ulp(g["blocks.0.ffn.up.weight"], 9, 1))
    first = first_difference(straight, planted.lines())
    assert (first.step, first.phase, first.tensor) == (3, "backward", "blocks.0.ffn.up.weight")
    assert (first.ulps, first.element, first.differing) == (1, [9, 1], 1)


def test_one_token_of_a_batch_is_named(tmp_path, straight):
    def plant(batch):
        batch.tokens[2, 5] = (batch.tokens[2, 5] + 1) % 13

    first = first_difference(straight, Planter(tmp_path).in_batch(2, plant).lines())
    assert (first.step, first.phase, first.layer, first.tensor) == (2, "data", "batch", "tokens.0")
    assert first.ulps in (1, -12)
    assert (first.element, first.differing, first.of) == ([2, 5], 1, 2)


@pytest.mark.parametrize(("site", "tensor"), [(0, "embedding"), (3, "blocks.0"), (6, "blocks.1")])
def test_one_element_of_a_dropout_mask_is_named(tmp_path, straight, monkeypatch, site, tensor):
    """Sites: the embedding; in each block attention's weights and both sublayers' outputs."""
    draw = Masks._draw

    def changed(masks, index, of):
        mask = draw(masks, index, of)
        if (index, masks.position) == (site, 4):
            element = mask[3 * 8 * 16 + 2 * 16 + 7]
            element.fill_(0.0 if element else of.kept)
        return mask

    monkeypatch.setattr(Masks, "_draw", changed)
    first = first_difference(straight, Planter(tmp_path).lines())
    assert (first.step, first.phase, first.tensor) == (4, "forward", tensor)
    assert first.element == [3, 2, 7]


def test_several_elements_are_a_net_and_no_element(tmp_path, straight):
    def plant(weights):
        for index in ((0, 0), (0, 2)):  # whose mean index would be a wrong answer
            one_ulp(weights["wpe"].data, *index)

    first = first_difference(straight, Planter(tmp_path).after_update(2, plant).lines())
    assert (first.ulps, first.element) == (2, None)


def test_a_difference_between_rows_is_placed_between_them(tmp_path):
    lines = [
        Planter(tmp_path, eval_interval=3).after_update(step, partial(plant)).lines()
        for step, plant in ((2, lambda p: None), (2, lambda p: one_ulp(p["wpe"].data, 0, 0)))
    ]
    found = diverge.asdict(diverge.compare(*lines).first)
    assert (found["since"], found["step"], found["phase"]) == (0, 3, "update")
    assert diverge._where(found).startswith("steps 0 to 2, update, embedding: ")


def test_a_longer_run_and_other_intervals_are_compared_where_they_meet(tmp_path, straight):
    longer = Planter(tmp_path, steps=8, schedule="constant").lines()
    base = Planter(tmp_path, schedule="constant").lines()
    seldom = Planter(tmp_path, schedule="constant", eval_interval=3).lines()
    found = diverge.compare(base, longer)
    assert found.first is None
    assert found.only == (0, 2 * (28 + 2 + 4 + 28))
    assert found.ends == ("finished at step 6", "finished at step 8")
    found = diverge.compare(base, seldom)
    assert (found.first, found.common, found.only) == (None, 3 * 62, (4 * 62, 0))
