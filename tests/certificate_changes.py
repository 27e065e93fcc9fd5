"""Certificates with one change each, which the checker must reject."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from hashlib import sha256
from typing import Any

import splinecam_check as checker

Lines = list[dict[str, Any]]
KINDS = (
    *("sign", "piece", "weight", "network", "drop", "double", "swap", "truncate"),
    *("side", "sides", "claim", "area", "value", "domain"),
)


def text_of(lines: Lines, digest: bool = True) -> list[str]:
    """The lines of a file, with the digest of the network as it is now, or as it was."""
    text = [json.dumps(line) + "\n" for line in lines]
    k = next((i for i, line in enumerate(lines) if "claims" in line), None)
    if digest and k is not None:
        own = "".join([*text[:k], json.dumps(lines[k]["outputs"])])
        text[k] = json.dumps(lines[k] | {"network": sha256(own.encode()).hexdigest()}) + "\n"
    return text


def changed(lines: Lines, draw: random.Random) -> tuple[str, list[str]]:
    """The kind of a change, and the changed file. The network's digest fits, unless it is asked.

    A weight is changed so much that the cells are others. Changes that leave a certificate true
    are no changes: sides may begin anywhere.
    """
    lines, kind = copy.deepcopy(lines), draw.choice(KINDS)
    cells = [i for i, line in enumerate(lines) if "cell" in line]
    k = draw.choice(cells)
    cell = lines[k]
    claims = next(line for line in lines if "claims" in line)["claims"]
    affine = [line["affine"] for line in lines if "affine" in line]
    if kind in ("sign", "piece"):
        part = draw.randrange(len(cell["cell"]))
        old = cell["cell"][part]
        unit = draw.randrange(len(old))
        other = draw.choice([p for p in "0123" if p != old[unit]]) if kind == "piece" else None
        new = other or {"0": "1", "1": "0"}[old[unit]]
        cell["cell"][part] = old[:unit] + new + old[unit + 1 :]
    elif kind == "weight":  # of a unit of the first layer that bounds a cell, so that this shows
        drawn = [s[1] for i in cells for s in lines[i]["sides"] if len(s) == 3 and s[0] == 0]
        row = affine[0][draw.choice(drawn)]
        place = draw.choice(range(2, len(row), 2))
        row[place] = number(-checker.number(row[place]) * Fraction(draw.randint(1, 9), 4))
    elif kind == "network":  # the last bit of a weight
        row = draw.choice(draw.choice(affine))
        place = draw.choice(range(0, len(row), 2))
        row[place] = number(
            checker.number(row[place]) * (1 + Fraction(1, 2**52)) + Fraction(1, 2**80)
        )
    elif kind == "drop":
        del lines[k]
    elif kind == "double":
        lines.insert(draw.choice(cells), cell)
    elif kind == "swap":
        i = draw.choice([i for i in cells if i != k])
        lines[i], lines[k] = lines[k], lines[i]
    elif kind == "side":
        cell["sides"][draw.randrange(len(cell["sides"]))] = draw.choice(
            [s for i in cells for s in lines[i]["sides"] if s not in cell["sides"]]
        )
    elif kind == "sides":
        if draw.random() < 0.5:
            del cell["sides"][draw.randrange(len(cell["sides"]))]
        else:
            cell["sides"].reverse()
    elif kind == "claim":
        claims[0]["number"] += draw.choice([-1, 1])
    elif kind == "area":
        limits = draw.choice(next(claim for claim in claims if claim["claim"] == "areas")["areas"])
        limits[:] = [
            number(checker.number(x) + Fraction(draw.choice([-1, 1]), 2**100)) for x in limits[:1]
        ] * 2
    elif kind == "value":
        claim = draw.choice([claim for claim in claims if claim["claim"] == "largest"])
        claim["value"] = number(
            checker.number(claim["value"]) + Fraction(draw.choice([-1, 1]), 2**100)
        )
    elif kind == "domain":
        corner = draw.choice(lines[0]["domain"])
        corner[draw.randrange(2)] = number(Fraction(draw.choice([-3, -2, 2, 3])))
    elif kind == "truncate":
        del lines[draw.choice(cells) :]
    return kind, text_of(lines, kind != "network")


def number(value: Fraction) -> str:
    """A number as the file has it."""
    return f"{value.numerator:x}/{value.denominator:x}"
