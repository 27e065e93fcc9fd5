"""``splinecam check-property``: whether a property holds on slices of its boxes."""

from __future__ import annotations

from argparse import Namespace
from math import prod
from typing import Any

import numpy as np

from splinecam._util.files import replaced, writing
from splinecam._util.options import device_of
from splinecam.cli import pictures
from splinecam.cli.console import Console, claim, json_text
from splinecam.cli.models import Found, chosen_cases, fitted, model_of, shared_options, slice_of_box
from splinecam.errors import SplineCamError
from splinecam.files.properties import Property
from splinecam.files.vnnlib import read_vnnlib
from splinecam.jobs import answering
from splinecam.jobs.partitioning import partition
from splinecam.questions.preimage import PropertyCheck

# An error is 2, as argparse has it for wrong usage.
_CODES = {"holds": 0, "violated": 1, "unresolved": 3}
_PRINTED = 32  # how many numbers of an input or output are printed


def check_property_command(options: Namespace) -> int:
    """Check a property on a slice of each of its boxes, or of one of them."""
    console = Console(options.quiet)
    if options.out is not None:
        pictures.prepare_pictures(otherwise="Or leave out --out: the verdict needs no picture.")
    device_of(options.device)
    files = [path for path in (options.out, options.witness) if path is not None]
    for path in (*files, options.certificate):  # which may be in different folders
        if path is not None:
            claim([path], force=options.force)
    prop = read_vnnlib(options.property)
    cases = chosen_cases(prop, options.property, options.case)
    if options.certificate is not None and len(cases) > 1:
        raise SplineCamError(
            f"A certificate is about one box, and {options.property} has {len(cases):,}. Choose "
            "one with --case."
        )
    found = model_of(options)
    checks = []
    for case in cases:
        if len(prop.cases) > 1:
            console.note("Box", f"{case} of {len(prop.cases):,}, counted from 0")
        checks.append(_checked(prop, case, found, options, console))
    codes = [_CODES[each.status] for each in checks]
    # A counterexample settles the whole question; otherwise an open case leaves it open.
    code = 1 if 1 in codes else max(codes)
    if options.json:
        content = [_about(each, case) for each, case in zip(checks, cases, strict=True)]
        status = next(word for word, number in _CODES.items() if number == code)
        about = {"model": options.model, "property": str(options.property), "status": status}
        Console().out(json_text({**about, "boxes": content}))  # also with --quiet
    if files:
        _write(checks[codes.index(code)], options, console)
    return code


def _checked(
    prop: Property, number: int, found: Found, options: Namespace, console: Console
) -> PropertyCheck:
    """Print and return the verdict on the slice of one box."""
    (model, shape), case = found, prop.cases[number]
    domain, _ = slice_of_box(options, *case.box, name=str(options.property))
    domain = fitted(options.model, shape, domain, options)
    pictures.axis_words(domain, options.features)  # an error before anything is computed
    shared = shared_options(options)
    if options.certificate is not None:
        whole = partition(model, domain, **shared)
        with console.timed("certificate"):
            whole.check(case, certificate=options.certificate)
        console.note("Certificate", f"{options.certificate}, {console.took('certificate')}")
    if options.quiet and not (options.json or options.out or options.witness):
        return answering.check(model, domain, case, verdict_only=True, **shared)
    with console.timed("check"), console.progress():
        check = answering.check(model, domain, case, **shared)
        part = check.preimage.partition
        pictures.name_classes(part, model, options)
        text = _report(check)
    where = "on the slice" if bool(part.complete.all()) else "divided where it matters"
    console.note("Regions", f"{len(part):,} {where}, {console.took('check')}")
    if not options.json:
        console.out(text)
    return check


def _about(check: PropertyCheck, case: int) -> dict[str, Any]:
    """Return the verdict on one box, for JSON."""
    witness, shown = check.witness, dict[str, Any]()
    if witness is not None:
        shown = {"input": witness.input.tolist(), "output": witness.outputs.tolist()}
        shown["confirmed"] = witness.confirmed
    return {
        "case": case,
        "status": check.status,
        "regions": len(check.preimage.partition),
        "area": check.area,
        "share": check.share,
        "undecided_area": check.undecided_area,
        "tied_area": check.preimage.tied_area,
        "witness": shown or None,
    }


def _report(check: PropertyCheck) -> str:
    """Return the verdict as text, with the input that shows it."""
    found, tied, undecided = check.preimage, check.preimage.tied_area, check.undecided_area
    why = "rounding cannot tell" if not undecided else "the bounds of --smooth do not tell"
    head = {
        "holds": "holds on this slice",
        "violated": f"violated on {100 * check.share:.4g} % of this slice, area {check.area:.6g}",
        "unresolved": f"unresolved: {why} whether the limits are met, "
        + (f"on an area of {undecided or tied:.6g}" if undecided or tied else "without an area"),
    }[check.status]
    lines, witness = [head], check.witness
    if witness is not None:
        judged = "unsafe by the model itself" if witness.confirmed else "the model says it is safe"
        lines.append(f"input    {_numbers(witness.input.flatten().tolist())}")
        lines.append(f"output   {_numbers(witness.outputs.tolist())}, {judged}")
    if found.unresolved or found.partition.unresolved:
        count = len(found.unresolved) + len(found.partition.unresolved)
        lines.append(f"{count:,} places of the partition could not be resolved")
    return "\n".join(lines)


def _numbers(values: list[float]) -> str:
    shown = ", ".join(f"{x:.9g}" for x in values[:_PRINTED])
    more = f", ... ({len(values):,} numbers)" if len(values) > _PRINTED else ""
    return f"[{shown}{more}]"


def _write(check: PropertyCheck, options: Namespace, console: Console) -> None:
    """Write the picture and the unsafe input, if they are wanted."""
    if options.out is not None:
        ax = check.plot(axes="ticks")
        pictures.name_axes(ax, check.preimage.partition.domain, options)
        pictures.write_figure(ax.figure, [options.out])
        console.note("Picture", str(options.out))
    if options.witness is None:
        return
    if check.witness is None:
        console.note("Input", "none is unsafe, so none is written")
        return
    x = check.witness.input
    with writing(options.witness), replaced(options.witness) as file:
        np.save(file, x.cpu().reshape(1, *x.shape).numpy(), allow_pickle=False)
    console.note("Input", f"{prod(x.shape):,} numbers in {options.witness}")
