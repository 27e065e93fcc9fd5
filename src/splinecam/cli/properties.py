"""``splinecam check-property``: whether a property holds on slices of its boxes."""

from __future__ import annotations

from argparse import Namespace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from splinecam._util.files import replaced, writing
from splinecam._util.options import device_of
from splinecam.cli import pictures
from splinecam.cli.console import Console, claim, json_text
from splinecam.cli.models import (
    Found,
    chosen_cases,
    find_model,
    fitted,
    model_of,
    shared_options,
    slice_of_box,
)
from splinecam.errors import SplineCamError
from splinecam.files.properties import Property
from splinecam.files.vnnlib import read_vnnlib
from splinecam.jobs import answering
from splinecam.jobs.partitioning import partition
from splinecam.network.capture.capturing import Both
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
    files = [path for path in (options.out, options.witness, options.verdict) if path is not None]
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
    found = _networks(prop, options)
    checks: dict[int, PropertyCheck] = {}
    for case in cases:
        if len(prop.cases) > 1:
            console.note("Box", f"{case} of {len(prop.cases):,}, counted from 0")
        checks[case] = _checked(prop, case, found, options, console)
        if checks[case].status == "violated" and not _whole(options):
            break  # which settles the question
    codes = [_CODES[each.status] for each in checks.values()]
    # A counterexample settles the whole question; otherwise an open case leaves it open.
    code = 1 if 1 in codes else max(codes)
    if options.json:
        content = [_about(each, case) for case, each in checks.items()]
        status = next(word for word, number in _CODES.items() if number == code)
        about = {"model": options.model, "property": str(options.property), "status": status}
        Console().out(json_text({**about, "boxes": content}))  # also with --quiet
    _write([*checks.values()][codes.index(code)], options, console)
    if options.verdict is not None:
        _write_verdict(prop, checks, options.verdict)
        console.note("Verdict", str(options.verdict))
    return code


def _networks(prop: Property, options: Namespace) -> Found:
    """Return the model, or both networks that a property is about."""
    first, shape = model_of(options)
    count = len(prop.networks) or 1
    if count != 1 + (options.beside is not None):
        names = ", ".join(prop.networks[: 3 * (count > 1)]) or "one network"
        how = "give the second one as --beside" if count == 2 else "--beside makes two"
        raise SplineCamError(f"{options.property} is about {names}: {how}.")
    if options.beside is None:
        return first, shape
    return Both(first, find_model(options.beside)[0]), shape


def _whole(options: Namespace) -> bool:
    """Return whether all that is unsafe is wanted, rather than a verdict."""
    return options.area or options.out is not None or options.certificate is not None


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
    with console.timed("check"), console.progress():
        check = answering.check(model, domain, case, verdict_only=not _whole(options), **shared)
        text = "" if options.quiet else _report(check)
    if check.divided:
        part = check.preimage.partition
        pictures.name_classes(part, model, options)
        where = "on the slice" if bool(part.complete.all()) else "divided where it matters"
        console.note("Regions", f"{len(part):,} {where}, {console.took('check')}")
    else:
        console.note("Regions", f"none were needed, {console.took('check')}")
    if not (options.json or options.quiet):
        console.out(text)
    return check


def _about(check: PropertyCheck, case: int) -> dict[str, Any]:
    """Return the verdict on one box, for JSON; what is not known is null."""
    witness, shown = check.witness, dict[str, Any]()
    if witness is not None:
        shown = {"input": witness.input.tolist(), "output": witness.outputs.tolist()}
        shown["confirmed"] = witness.confirmed
    names = "area", "share", "undecided_area", "tied_area"
    areas: dict[str, float | None] = dict.fromkeys(names)
    if check.divided:
        known = check.area, check.share, check.undecided_area, check.preimage.tied_area
        areas = dict(zip(names, known, strict=True))
    regions = len(check.preimage.partition) if check.divided else None
    about = {"case": case, "status": check.status, "regions": regions}
    return {**about, **areas, "witness": shown or None}


def _report(check: PropertyCheck) -> str:
    """Return the verdict as text, with the input that shows it."""
    lines, witness = [_head(check)], check.witness
    if witness is not None:
        judged = "unsafe by the model itself" if witness.confirmed else "the model says it is safe"
        lines.append(f"input    {_numbers(witness.input.flatten().tolist())}")
        lines.append(f"output   {_numbers(witness.outputs.tolist())}, {judged}")
    if check.divided and (check.preimage.unresolved or check.preimage.partition.unresolved):
        count = len(check.preimage.unresolved) + len(check.preimage.partition.unresolved)
        lines.append(f"{count:,} places of the partition could not be resolved")
    return "\n".join(lines)


def _head(check: PropertyCheck) -> str:
    """Return the verdict in a line."""
    if not check.divided:
        return "violated on this slice; --area says on how much of it"
    if check.status == "holds":
        return "holds on this slice"
    if check.status == "violated":
        return f"violated on {100 * check.share:.4g} % of this slice, area {check.area:.6g}"
    tied, undecided = check.preimage.tied_area, check.undecided_area
    smoothed = check.preimage.partition.smoothing is not None
    why = "the bounds of --smooth do not tell" if smoothed else "rounding cannot tell"
    where = f"on an area of {undecided or tied:.6g}" if undecided or tied else "without an area"
    return f"unresolved: {why} whether the limits are met, {where}"


def _numbers(values: list[float]) -> str:
    shown = ", ".join(f"{x:.9g}" for x in values[:_PRINTED])
    more = f", ... ({len(values):,} numbers)" if len(values) > _PRINTED else ""
    return f"[{shown}{more}]"


def _write_verdict(prop: Property, checks: dict[int, PropertyCheck], path: Path) -> None:
    """Write what the checks say of the whole property, in the format of VNN-COMP."""
    seen = (each.witness for each in checks.values() if each.status == "violated")
    shown = next((each for each in seen if each is not None and each.confirmed), None)
    # A slice says nothing of the rest of a box in which more than two inputs vary.
    whole = all(int((case.box[0] < case.box[1]).sum()) <= 2 for case in prop.cases)
    holds = all(each.status == "holds" and each.covered >= 1 for each in checks.values())
    text = "unsat" if holds and whole and len(checks) == len(prop.cases) else "unknown"
    if shown is not None:
        given = [*enumerate(shown.input.flatten().tolist())], [*enumerate(shown.outputs.tolist())]
        named = zip("XY", given, strict=True)
        values = [f"({name}_{k} {value!r})" for name, values in named for k, value in values]
        text = "\n".join(["sat", f"({values[0]}", *(f" {each}" for each in values[1:])]) + ")"
    with writing(path), replaced(path) as file:
        file.write(f"{text}\n".encode())


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
