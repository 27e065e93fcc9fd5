"""A small character transformer, on the plane through three of its residual states.

Two blocks of attention learn to guess the next letter of a short text from the last twelve.
Attention and normalisation have no linear regions: `sc.freeze` holds the attention patterns and the
denominators at the mean of three residual states. The GELU units remain, and `smooth=` replaces
them by linear pieces within a proved bound. In the hatched band on the left, the guess of the
frozen transformer is not certain. The picture on the right shows the measured distance of the real
transformer from the frozen one. On the dashed lines the real one changes its guess.

Run: python examples/transformer.py --out out
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

import splinecam as sc
from splinecam.plot import INK

TEXT = """
the tide comes in before the boats go out. an old man mends his net on the stones and counts the
gulls that sit on the wall. he says that a gull knows the wind, and that the wind knows nobody. in
the morning the water is grey and the far shore is a thin line. by noon the line is gone, and the
boats come home one by one with little in them. the children run down to look, and the gulls rise
from the wall and settle again. nobody counts them now. at night a lamp burns in the last house, and
the old man sleeps beside his net, and the tide goes out and comes in again before the boats do.
"""
CONTEXT = 12
BEFORE = ("is gone, and the b", "to look, and the g", "last house, and the o")  # oats, ulls, ld


class Block(nn.Module):
    """Attention to what came before, and a layer of units, each on the normalised states."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.units = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor, last_only: bool = False) -> Tensor:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        x = x[:, -1:] if last_only else x
        return x + self.units(self.between(x))


class AfterEmbedding(nn.Module):
    """From the residual states (CONTEXT, width) behind the embedding to the next letter."""

    def __init__(self, letters: int, width: int, heads: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, last_only=block is self.blocks[-1])  # no one asks what the others guess
        return self.head(self.norm(x[:, -1]))


class Transformer(nn.Module):
    """Letters (B, CONTEXT) to the scores of the next letter."""

    def __init__(self, letters: int, *, width: int, heads: int = 2, blocks: int = 2) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        self.place = nn.Parameter(torch.randn(CONTEXT, width))
        self.rest = AfterEmbedding(letters, width, heads, blocks)

    def states(self, letters: Tensor) -> Tensor:
        """The residual states in which the first block begins."""
        return self.letter(letters) + self.place

    def forward(self, letters: Tensor) -> Tensor:
        return self.rest(self.states(letters))


def windows(text: str) -> tuple[list[str], Tensor, Tensor]:
    """The alphabet, all windows (N, CONTEXT) of a text, and the letter after each, (N,)."""
    text = " ".join(text.split())
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(letter) for letter in text])
    return alphabet, codes[:-1].unfold(0, CONTEXT, 1), codes[CONTEXT:]


def train(model: nn.Module, x: Tensor, following: Tensor, *, steps: int, seed: int) -> None:
    """Fit the model in place on random windows."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (64,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[batch]), following[batch]).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def outputs_on_a_grid(model: nn.Module, plane: sc.Domain, count: int) -> Tensor:
    """What a model computes at the middles of count x count squares, (count, count, n_out)."""
    low, high = plane.corners.amin(0), plane.corners.amax(0)
    middles = (torch.arange(count) + 0.5) / count
    u, v = (low[i] + (high[i] - low[i]) * middles for i in (0, 1))
    x = plane.embed(torch.cartesian_prod(v, u).flip(1))
    with torch.no_grad():
        y = torch.cat([model(part.float()) for part in x.split(2000)])
    return y.view(count, count, -1)


def picture(
    part: sc.Partition, frozen: sc.results.Frozen, states: Tensor, count: int
) -> plt.Figure:
    """The regions of the frozen model, and its distance from the real one."""
    plane, corners = part.domain, part.domain.corners
    real, held = (outputs_on_a_grid(model, plane, count) for model in (frozen.real, frozen))
    (left, bottom), (right, top) = corners.amin(0).tolist(), corners.amax(0).tolist()
    figure, axes = plt.subplots(
        1, 2, figsize=(12.6, 5.9), layout="constrained", width_ratios=(1.13, 1.12)
    )
    part.plot(ax=axes[0], points=states, linewidth=0.15)
    axes[0].set_title(f"{len(part):,} regions of the frozen transformer, by its guess")
    gap = (real - held).abs().amax(2)
    extent = (left, right, bottom, top)
    image = axes[1].contourf(gap, levels=12, extent=extent, cmap="YlOrRd")
    axes[1].set_aspect("equal")
    figure.colorbar(image, ax=axes[1], label="largest difference of an output, measured")
    axes[1].set_title("how far the real one is from it")
    axes[1].set_axis_off()
    u, v = plane.project(states)[0].T.tolist()
    axes[1].scatter(u, v, s=30, c="white", edgecolors=INK)
    u, v = plane.project(frozen.at[None])[0][0].tolist()
    axes[1].plot(u, v, "+", color=INK, markersize=10)
    winner = real.argmax(2)
    for letter in winner.unique().tolist()[:-1]:  # each border once, from one of its sides
        margin = real[:, :, letter] - real[:, :, letter + 1 :].amax(2)
        margin = margin.masked_fill(winner < letter, torch.nan)
        for ax in axes:
            style = {"colors": INK, "linewidths": 1.4, "linestyles": "dashed"}
            ax.contour(margin, levels=[0], extent=extent, **style)
    return figure


def main(argv: list[str] | None = None) -> None:
    """Train, freeze, compute, measure, draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--width", type=int, default=24, help="of the residual stream")
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--smooth", default="10%", help="error of GELU, of the outputs' range")
    parser.add_argument("--margin", type=float, default=0.15, help="room around the three states")
    parser.add_argument("--grid", type=int, default=160, help="points of the real model, per side")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    alphabet, x, following = windows(TEXT)
    torch.manual_seed(options.seed)
    model = Transformer(len(alphabet), width=options.width)
    train(model, x, following, steps=options.steps, seed=options.seed)
    right = float((model(x).argmax(1) == following).double().mean())
    print(f"{right:.1%} of {len(x)} letters right")

    codes = [[alphabet.index(letter) for letter in words[-CONTEXT:]] for words in BEFORE]
    contexts = torch.tensor(codes)
    states = model.states(contexts).detach()
    for context, guess in zip(contexts.tolist(), model(contexts).argmax(1).tolist(), strict=True):
        print(f"  {''.join(alphabet[i] for i in context)!r} is followed by {alphabet[guess]!r}")
    frozen = sc.freeze(model.rest, at=states.mean(0))
    print(frozen)
    plane = sc.Domain.through(*states, margin=options.margin)
    part = sc.partition(frozen, plane, smooth=options.smooth, names=alphabet, progress=False)
    print(part)
    print(part.smoothing)
    print(frozen.gap(plane))

    figure = picture(part, frozen, states, options.grid)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "transformer.png"
    figure.savefig(path, dpi=80)
    print(f"The picture is in {path}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the networks are too small to share among threads
    main()
