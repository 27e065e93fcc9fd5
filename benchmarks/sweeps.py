"""Many small domains: one sweep beside one partition after the other."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import torch
from common import Table, alone, in_turns, perceptron, seconds, warm_up

import splinecam as sc
from splinecam.engine.run import run
from splinecam.network.capture import capture

DOMAINS = 90
WIDTHS = (784, 200, 200, 200, 10)  # a classifier of 28 x 28 pixels
SIDE = 2.0

TABLE = Table(
    {
        "workload": "<28",
        "domains": ">10",
        "regions": ">10,",
        "partition": ">11.3f",
        "captured": ">11.3f",
        "sweep": ">11.3f",
        "ratio": ">9.1f",
        "captured ratio": ">16.1f",
    }
)


def neighbourhoods(count: int) -> list[sc.Domain]:
    """Small squares around random images."""
    images = torch.rand(count, WIDTHS[0], generator=torch.Generator().manual_seed(2))
    return [sc.Domain.around(image, side=SIDE, seed=i) for i, image in enumerate(images)]


def measure(count: int, repeat: int, device: torch.device) -> dict[str, Any]:
    """One sweep, as many calls of partition, and as many runs of one captured program."""
    model, domains = perceptron(*WIDTHS).to(device), neighbourhoods(count)
    warm_up(device)
    program = capture(model, domains[0].input_shape, device=device)
    quiet = {"device": device, "progress": False}

    def each() -> None:
        for domain in domains:
            sc.partition(model, domain, **quiet)

    def captured() -> None:
        with torch.no_grad():
            for domain in domains:
                run(program, domain)

    sweep = partial(sc.sweep, model, domains, **quiet)
    parts = sweep()
    one = seconds(each, device)  # capturing included, again and again
    known, many = (time.best for time in in_turns([captured, sweep], repeat, device))
    return {
        "workload": "mlp784_200x3",
        "domains": count,
        "regions": sum(map(len, parts)),
        "partition": one,
        "captured": known,
        "sweep": many,
        "ratio": one / many,
        "captured ratio": known / many,
    }


def report(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Print the table."""
    print("\nMany small domains: one after the other, the same with one capture, and one sweep")
    print(TABLE.heading())
    row = alone(measure, DOMAINS, settings.repeat, settings.device)
    print(TABLE.line(row), flush=True)
    return [{"group": "sweep", **row}]
