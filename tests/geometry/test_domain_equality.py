"""Domains are equal if they are the same polygon of the same plane."""

from __future__ import annotations

import pickle
from typing import Any

import torch

import splinecam as sc


def test_equal_domains_are_equal() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    makers: list[Any] = [
        lambda: sc.Domain.box(-1, 1),
        lambda: sc.Domain.box((0, 0), (2, 1)),
        lambda: sc.Domain.box(-1, 1, input_shape=(1, 2)),
        lambda: sc.Domain.through(*x),
        lambda: sc.Domain.around(x[0], side=2.0, seed=1),
        lambda: sc.Domain.around(x[0], side=2.0, seed=2),
        lambda: sc.Domain.around(x[1], side=2.0, seed=1),
        lambda: sc.Domain.box(-1, 1).zoom(2),
    ]
    domains = [make() for make in makers]
    again = [make() for make in makers]
    assert domains == again
    assert [hash(each) for each in domains] == [hash(each) for each in again]
    assert len(set(domains + again)) == len(makers)
    assert {domains[0]: "here"}[again[0]] == "here"
    assert domains[0] != "domain"
    assert pickle.loads(pickle.dumps(domains[3])) == domains[3]


def test_the_first_corner_and_the_sign_of_zero_do_not_matter() -> None:
    corners = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
    one = sc.Domain.polygon(corners)
    turned = sc.Domain.polygon(corners[2:] + corners[:2])
    minus = sc.Domain.polygon([[-0.0, 0.0], [1.0, -0.0], [1.0, 1.0], [0.0, 1.0]])
    backwards = sc.Domain.polygon(corners[::-1])
    assert one == turned == minus == backwards == sc.Domain.box(0, 1)
    assert len({one, turned, minus, backwards}) == 1
    assert one != sc.Domain.polygon(corners[:3])
