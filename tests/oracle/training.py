"""Draws a random training run, and trains it in PyTorch in float64."""

import copy
import dataclasses
import math

import torch

import models
import order

STEPS = 20


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Recipe holds the settings of a run, except the model and the data."""
    sequences: int  # per step
    micro_batch: int
    seed: int
    learning_rate: float
    betas: tuple
    epsilon: float
    weight_decay: float
    clip_norm: float
    kind: str
    warmup_steps: int
    decay_fraction: float
    final_ratio: float
    recompute: str
    decayed: str = "matrices"  # or "all", for a wrong run

    @staticmethod
    def random(rng):
        sequences = rng.randrange(3, 8)
        return Recipe(
            sequences=sequences, micro_batch=rng.randrange(1, sequences),  # always with gradient accumulation
            seed=rng.randrange(1 << 40),
            learning_rate=rng.uniform(2e-3, 6e-3),
            betas=(rng.uniform(0.8, 0.95), rng.uniform(0.9, 0.99)),
            # With less, AdamW makes a full step from an element of a gradient that is only rounding.
            epsilon=10 ** rng.uniform(-6, -4),
            weight_decay=rng.uniform(0.3, 1.0), clip_norm=0.0,
            kind=rng.choice(["constant", "cosine", "linear", "wsd"]),
            warmup_steps=rng.randrange(5), decay_fraction=rng.uniform(0.3, 0.9),
            final_ratio=rng.uniform(0, 0.3), recompute=rng.choice(["none", "cheap", "block"]))

    def rate(self, step):
        """Returns the learning rate of a step by docs/configuration.md, [schedule]; steps count from 1."""
        if step <= self.warmup_steps:
            return self.learning_rate * step / self.warmup_steps
        decay = math.floor(self.decay_fraction * STEPS + 0.5)
        stable = max(self.warmup_steps, STEPS - decay)
        if self.kind == "constant" or step <= stable:
            return self.learning_rate
        x = (step - 1 - stable) / (STEPS - stable)
        share = {"cosine": (1 + math.cos(math.pi * x)) / 2, "linear": 1 - x,
                 "wsd": 1 - math.sqrt(x)}[self.kind]
        return self.learning_rate * (self.final_ratio + (1 - self.final_ratio) * share)

    def tables(self, shape, shards, compute="fp32"):
        """Returns the configuration of the same run."""
        return dict(
            model=shape.toml(),
            train=dict(steps=STEPS, sequence_length=shape.length,
                       batch_tokens=self.sequences * shape.length, micro_batch=self.micro_batch,
                       recompute=self.recompute),
            optimizer=dict(learning_rate=self.learning_rate, beta1=self.betas[0],
                           beta2=self.betas[1], epsilon=self.epsilon,
                           weight_decay=self.weight_decay, clip_norm=self.clip_norm),
            schedule=dict(kind=self.kind, warmup_steps=self.warmup_steps,
                          decay_fraction=self.decay_fraction, final_ratio=self.final_ratio),
            data=dict(train=[str(path) for path in shards], seed=self.seed),
            checkpoint=dict(every_steps=0),
            log=dict(tensorboard=False),
            precision=dict(compute=compute))


@dataclasses.dataclass
class Trained:
    model: torch.nn.Module
    losses: list
    grad_norms: list

    def errors(self, losses, grad_norms):
        """Returns the largest relative errors of another run's losses and of its norms."""
        return tuple(max(abs(a - b) / abs(b) for a, b in zip(theirs, own, strict=True))
                     for theirs, own in ((losses, self.losses), (grad_norms, self.grad_norms)))


def train(model, recipe, data, dtype=torch.float64):
    """Trains by AdamW on the windows of `data`, in the order of the recipe's seed."""
    model = copy.deepcopy(model).to(dtype)
    parameters = list(model.parameters())
    decayed = [p for p in parameters if p.dim() >= 2 or recipe.decayed == "all"]
    others = [p for p in parameters if p.dim() < 2 and recipe.decayed != "all"]
    optimizer = torch.optim.AdamW(
        [dict(params=decayed, weight_decay=recipe.weight_decay),
         dict(params=others, weight_decay=0.0)],
        lr=recipe.learning_rate, betas=recipe.betas, eps=recipe.epsilon)
    result = Trained(model, [], [])
    for step in range(1, STEPS + 1):
        first = (step - 1) * recipe.sequences
        batch = data[[order.sample(recipe.seed, len(data), g)
                      for g in range(first, first + recipe.sequences)]]
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(step)
        optimizer.zero_grad()
        loss = models.loss(model, batch)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, recipe.clip_norm or math.inf)
        optimizer.step()
        result.losses.append(loss.item())
        result.grad_norms.append(norm.item())
    return result


def clipped(recipe, norms):
    return sum(norm > recipe.clip_norm for norm in norms)


def with_clipping(model, recipe, data):
    """Returns the recipe with a clip_norm that many of its steps reach and others do not."""
    for _ in range(5):  # the norms depend on clip_norm
        norms = train(model, recipe, data).grad_norms
        if recipe.clip_norm and STEPS // 4 <= clipped(recipe, norms) < STEPS:
            break
        recipe = dataclasses.replace(recipe, clip_norm=sorted(norms)[STEPS // 3])
    return recipe


def draw(rng, new_model, data, most):
    """Draws a model and a recipe whose run does not amplify rounding.

    The errors of loss and norm of PyTorch's own fp32 are at most `most`. Sometimes one element of a
    gradient is only rounding, and AdamW makes a full step from it. The comparison would then not
    show which side is right."""
    for _ in range(20):
        model = new_model()
        recipe = with_clipping(model, Recipe.random(rng), data)
        expected = train(model, recipe, data)
        own = train(model, recipe, data, torch.float32)
        errors = expected.errors(own.losses, own.grad_norms)
        if all(error <= limit for error, limit in zip(errors, most)):
            return model, recipe, expected
        print(f"       drawn again: PyTorch's fp32 has an error of {errors[0]:.0e} in the loss, "
              f"{errors[1]:.0e} in the gradient norm")
    raise RuntimeError("20 draws amplified rounding")


def mistakes(recipe):
    """Yields recipes with one wrong setting each. A check must detect each of them."""
    yield "without clipping", dataclasses.replace(recipe, clip_norm=0.0)
    yield "decay of vectors too", dataclasses.replace(recipe, decayed="all")
    yield "another decay", dataclasses.replace(recipe, weight_decay=recipe.weight_decay * 1.3)
    yield "another order", dataclasses.replace(recipe, seed=recipe.seed + 1)
    yield "another rate", dataclasses.replace(recipe, learning_rate=recipe.learning_rate * 1.01)
