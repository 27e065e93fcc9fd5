"""Atlases with many tiles, each of which is computed once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from torch import nn

import splinecam as sc
from atlas_cases import DOMAIN, SMALL, Both, network
from small_atlases import compute_atlas


@pytest.fixture(scope="session")
def computed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Both]:
    """Compute the atlas and the partition of a network, by default on ``DOMAIN``."""

    @cache
    def compute(make: Callable[[], nn.Module], domain: sc.Domain = DOMAIN) -> Both:
        model = make()
        atlas = compute_atlas(model, domain, tmp_path_factory.mktemp("atlas"), sizes=SMALL)
        assert atlas.num_tiles > 4
        return Both(atlas, sc.partition(model, domain, progress=False))

    return compute


@pytest.fixture(scope="module")
def atlas(computed: Callable[..., Both]) -> sc.results.Atlas:
    return computed(network).atlas


@pytest.fixture(scope="module")
def whole(computed: Callable[..., Both]) -> sc.Partition:
    return computed(network).whole
