"""One function for each command; two larger ones are in ``viewing`` and ``properties``."""

from __future__ import annotations

import csv
import io
import shlex
import shutil
import textwrap
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any

from splinecam import __version__
from splinecam._util.options import device_of
from splinecam._util.text import TextTable, number_text, optional
from splinecam.cli import demo, models
from splinecam.cli.console import (
    Console,
    claim,
    inside,
    json_text,
    make_folder,
    printing,
    write_text,
)
from splinecam.cli.parser import SURFACES, levels_of
from splinecam.cli.pictures import (
    axis_words,
    draw,
    name_classes,
    prepare_pictures,
    require_outputs,
    write_figure,
)
from splinecam.cli.properties import check_property_command
from splinecam.cli.surfaces import surface_command
from splinecam.cli.viewing import playground_command, view_command
from splinecam.errors import CaptureError, DataError, SplineCamError, UnsupportedOpError, option
from splinecam.geometry.domain import Domain
from splinecam.jobs.difference import difference
from splinecam.jobs.estimating import estimate
from splinecam.jobs.local import local_complexity
from splinecam.jobs.partitioning import partition
from splinecam.network.capture import capture
from splinecam.network.ops.registry import TITLES, OpRow, op_table, op_table_markdown
from splinecam.network.program import Program
from splinecam.partitions.partition import Partition, load
from splinecam.questions.boundary import knows_classes
from splinecam.questions.comparison import compare
from splinecam.questions.curves import Curves
from splinecam.questions.difference import Difference
from splinecam.questions.measures import table_columns
from splinecam.questions.stats import Stats

_CLASSES = 20  # how many classes are printed
_LEFT_OUT = "Statistics of regions need all of them: leave out --refine."


def _partition(options: Namespace) -> int:
    console = Console(options.quiet)
    formats = () if options.no_plot else tuple(dict.fromkeys(options.format or ["png"]))
    if formats:
        prepare_pictures(otherwise="Or say --no-plot: the partition and its statistics need none.")
    device_of(options.device)
    names = ["partition.npz", "stats.json", "stats.txt", *(f"regions.{kind}" for kind in formats)]
    saved, numbers, text, *pictures = paths = [options.out / name for name in names]
    claim(paths, force=options.force)
    if options.certificate is not None:
        claim([options.certificate], force=options.force)
    domain, anchors = models.domain_of(options)
    assert domain is not None  # the parser sees to it
    part = _computed(options, domain, console)
    if anchors is not None:
        anchors = anchors.reshape(-1, *part.domain.input_shape)
    make_folder(options.out)
    with console.timed("statistics"):
        part.save(saved)
        stats = _stats_of(part)
    if options.certificate is not None:
        with console.timed("certificate"):
            written = part.certify(options.certificate, exact=True)
        where = f"{written.regions:,} regions in {options.certificate}"
        console.note("Certificate", f"{where}, {console.took('certificate')}")
    weights = None if options.weights is None else str(options.weights)
    about = {**_about(part, stats), "model": options.model, "weights": weights}
    about |= {"validated": options.validate, "device": str(part.mesh.uv.device)}
    write_text(numbers, json_text({**about, "seconds": console.seconds}) + "\n")
    write_text(text, f"{options.model}\n{part!r}\n{part.domain!r}\n\n{_printed(part, stats)}\n")
    try:
        with console.timed("picture"):
            draw(part, pictures, options, anchors)
    except Exception as error:
        command = shlex.join(["splinecam", "plot", str(saved), "--out", str(pictures[0])])
        error.add_note(f"The partition is saved. This draws it with the usual options: {command}")
        raise
    if pictures:
        console.note("Picture", console.took("picture"))
        _note_boundary(part, options, console)
    console.note("", "")
    console.out(f"{_printed(part, stats)}\n\nWritten to {options.out}: {', '.join(names)}")
    return 0


def _computed(options: Namespace, domain: Domain, console: Console) -> Partition:
    """Return the partition of a model, checked unless --no-validate is given."""
    with console.timed("model"):
        model, known = models.model_of(options)
    domain = models.fitted(options.model, known, domain, options)
    numbers = options.output, options.level, levels_of(options) or None
    if any(each is not None for each in numbers) or options.color == "output":
        replaced, shape = options.smooth is not None, domain.input_shape
        program = capture(model, shape, output=options.result, smooth=replaced)
        require_outputs(options, prod(program.output_shape))
        if numbers[2] and prod(program.output_shape) == 1 and options.level is None:
            options.level = numbers[2][0]  # which is drawn
    axis_words(domain, options.features)  # an error before anything is computed
    console.note("Model", f"{options.model}, {console.took('model')}")
    console.note("Domain", inside(domain))
    with console.timed("partition"), console.progress():
        part = partition(model, domain, **models.shared_options(options))
    name_classes(part, model, options)
    console.note("Partition", f"{inside(part)}, {console.took('partition')}")
    if part.smoothing is not None:
        console.note("Smooth", inside(part.smoothing))
    if options.validate:
        with console.timed("check"):
            report = part.validate(thorough=options.thorough, progress=not options.quiet)
        head, count = str(report).splitlines()[0], len(report.checks)
        console.note("Check", f"{count} checks passed, {head}, {console.took('check')}")
    if part.unresolved:
        console.note("Unresolved", f"{len(part.unresolved):,} places, listed in stats.json")
    return part


def _stats_of(part: Partition, *, full: bool = False) -> Stats:
    """Return the statistics of a partition; of a refined one, those that are certain."""
    wanted, number = part._wanted, int(part.complete.sum())
    if wanted is None:
        return part.stats(full=full)
    if wanted.condition is not None:
        curves: Curves = part.preimage(wanted.condition).outline
    elif wanted.aspect == "level":
        curves = part.level_set(wanted.levels, output=wanted.output)
    else:
        kind: Any = wanted.aspect
        curves = part.decision_boundary(kind=kind, classes=wanted.pair)
    settled = float(part.areas[~part.complete].sum()) / part.domain.area
    counts = {"complete_regions": number, "settled_regions": len(part) - number}
    found = {**counts, "settled_share": settled, "boundary_segments": len(curves)}
    return Stats({**found, "boundary_length": curves.length})


def _about(part: Partition, stats: Stats) -> dict[str, Any]:
    """Return what is known of a partition, for JSON."""
    domain = part.domain
    plane = {"input_shape": domain.input_shape, "corners": domain.corners.tolist()}
    about = {
        "splinecam": __version__,
        "domain": {**plane, "area": domain.area, "diameter": domain.diameter},
        "layers": part.layers,
        "stripped": part.stripped,
        "output": getattr(part._chosen_output, "name", part._chosen_output),  # functions have names
        "stats": stats.nested(),
        "classes": _class_areas(part),
        "unresolved": [place._asdict() for place in part.unresolved],
    }
    if part._wanted is not None:
        about |= {"made_for": part._wanted.words, "left_out": _LEFT_OUT}
    if part.smoothing is not None:
        replaced = [asdict(layer) for layer in part.smoothing.layers]
        about |= {"bound": part._bound.tolist(), "replaced": replaced}
    return about


def _class_areas(part: Partition) -> dict[str, dict[str, float]]:
    """Return the area and the share of each class that occurs; one unnamed output has none."""
    if (part._n_out == 1 and part.names is None) or not knows_classes(part, 0.0):
        return {}
    areas = part.class_regions().areas.tolist()
    names = part.names or [str(k) for k in range(len(areas))]
    pairs = zip(names, areas, strict=True)
    return {name: {"area": x, "share": x / part.domain.area} for name, x in pairs if x > 0}


def _printed(part: Partition, stats: Stats) -> str:
    """Return the statistics and the areas of the largest classes as text."""
    found = sorted(_class_areas(part).items(), key=lambda item: -item[1]["area"])
    if part._wanted is None:
        text = str(stats)
    else:
        rows = [(name.replace("_", " "), [number_text(x)]) for name, x in stats.items()]
        table = TextTable(f"Regions for {part._wanted.words}", ("",), rows)
        text = f"{table.text(32)}\n\n{_LEFT_OUT}"
    if not found:
        return text
    shown = {name: (number_text(x["area"]), f"{100 * x['share']:.3g} %") for name, x in found}
    rows = [(name, list(texts)) for name, texts in shown.items()][:_CLASSES]
    more = f"\n  ... and {len(found) - _CLASSES:,} more" if len(found) > _CLASSES else ""
    table = TextTable("Classes", ("area", "share"), rows)
    return f"{text}\n\n{table.text(4 + max(len(name) for name, _ in rows))}{more}"


def _plot(options: Namespace) -> int:
    console = Console(options.quiet)
    out: Path = options.out or options.saved.with_suffix(".png")
    prepare_pictures()
    claim([out], force=options.force)
    part = models.saved_partition(options.saved, options)
    name_classes(part, None, options)
    anchors = None
    if options.points is not None:
        samples = models.read_samples(options.points, options.key, part.domain.input_shape)
        anchors = models.picked(samples, options.pick, options.points)
    require_outputs(options, part._n_out)
    with console.timed("picture"):
        draw(part, [out], options, anchors)
    console.out(f"{len(part):,} regions drawn to {out} in {console.took('picture')}")
    _note_boundary(part, options, console)
    return 0


def _note_boundary(part: Partition, options: Namespace, console: Console) -> None:
    """Say that the requested boundary does not meet the domain, where that is so."""
    asked, level = options.boundary or options.level is not None, options.level or 0.0
    if part._wanted is not None:
        return  # outputs are not known everywhere
    low, high = float(part.values.min()), float(part.values.max())
    if asked and part._n_out == 1 and not low <= level <= high:
        console.note("Boundary", f"none: the output is {low:.4g} to {high:.4g}, never {level:g}")


def _export(options: Namespace) -> int:
    console = Console(options.quiet)
    for path in options.files:
        claim([path], force=options.force)
    part = load(options.saved)
    for path in options.files:
        make_folder(path.parent)
        given: dict[str, Any] = {"columns": options.columns, "progress": not options.quiet}
        if path.suffix.lower() == ".parquet":
            given = {"columns": options.columns or "all"}
        elif path.suffix.lower() in SURFACES:
            given |= {"output": options.output, "space": options.space or "plane"}
        with console.timed("file"):
            part.export(path, **given)
        size = path.stat().st_size / 1e6
        console.out(f"{len(part):,} regions in {path}, {size:.3g} MB, {console.took('file')}")
    return 0


def _stats(options: Namespace) -> int:
    console = Console()
    if options.table is not None:
        claim([options.table], force=options.force)
    parts = {str(path): models.saved_partition(path, options) for path in options.saved}
    stats_of = _stats_of if len(parts) == 1 else Partition.stats  # which refuses refined ones
    found = {name: stats_of(part, full=options.full) for name, part in parts.items()}
    if options.json:
        content = [{"file": name, **_about(parts[name], found[name])} for name in parts]
        console.out(json_text(content[0] if len(content) == 1 else content))
    elif len(found) > 1:
        console.out(str(compare(found)))
    else:
        (name,) = found
        head = textwrap.fill(repr(parts[name]), 80, subsequent_indent="  ")
        console.out(f"{head}\n{parts[name].domain!r}\n\n{_printed(parts[name], found[name])}")
    if options.table is not None:
        (part,) = parts.values()
        _write_table(part, options.table)
        console.note("Table", f"{len(part):,} rows in {options.table}")
    return 0


def _write_table(part: Partition, path: Path) -> None:
    """Write one row per region to a Parquet file, or as text, which needs no pandas."""
    make_folder(path.parent)
    if path.suffix.lower() == ".parquet":
        part.export(path)
        return
    columns, text = table_columns(part), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["region", *columns])
    values = (column.tolist() for column in columns.values())
    writer.writerows(zip(range(len(part)), *values, strict=True))
    write_text(path, text.getvalue())


def _difference(options: Namespace) -> int:
    console = Console(options.quiet)
    if options.out is not None:
        prepare_pictures()
        claim([options.out], force=options.force)
    device_of(options.device)
    domain, _ = models.domain_of(options)
    assert domain is not None  # the parser sees to it
    networks = []
    for word, weights in ((options.first, options.weights), (options.second, options.weights_b)):
        with console.timed(word):
            model, shape = models.find_model(word, options.arg, weights)
        domain = models.fitted(word, shape, domain, options)
        console.note("Model", f"{word}, {console.took(word)}")
        networks.append(model)
    console.note("Domain", inside(domain))
    with console.timed("difference"), console.progress():
        diff = difference(networks[0], networks[1], domain, **models.shared_options(options))
    console.note("Regions", f"{inside(diff.partition)}, {console.took('difference')}")
    if options.out is not None:
        labels = (options.first, options.second)
        write_figure(diff.plot(output=options.output, labels=labels).figure, [options.out])
        console.note("Picture", str(options.out))
    console.note("", "")
    text = _difference_json(diff, options) if options.json else f"{diff}\n\n{diff.largest()}"
    Console().out(text)  # the result, also with --quiet
    return 0


def _difference_json(diff: Difference, options: Namespace) -> str:
    """Return the numbers, the largest differences, and the areas of pairs of classes as JSON."""

    def largest(norm: Any) -> dict[str, Any]:
        found = diff.largest(norm)
        numbers = {"value": found.value, "error": found.error, "place": found.place}
        outputs = [output.tolist() for output in found.outputs]
        at = {"input": found.input.tolist(), "outputs": outputs}
        return {"norm": f"{found.norm:g}", **numbers, **at}

    content: dict[str, Any] = {
        "models": [options.first, options.second],
        "stats": diff.stats(),
        "error": diff.error.tolist(),
        "largest": [largest(norm) for norm in (1, 2, "inf")],
        "areas": diff.disagreement.areas.tolist(),
        "unresolved": [place._asdict() for place in diff.unresolved],
    }
    return json_text(content)


def _local(options: Namespace) -> int:
    console = Console(options.quiet)
    model, known = models.model_of(options)
    samples = models.read_samples(options.points, options.key, options.input_shape or known)
    samples = models.picked(samples, options.pick, options.points)
    how = {name: getattr(options, name) for name in ("directions", "seed", "precision", "exact")}
    place = {"device": options.device, "memory": options.memory, "output": options.result}
    found = local_complexity(model, samples, options.radius, progress=False, **how, **place)
    console.out(json_text(found.to_dict()) if options.json else str(found))
    return 0


def _check(options: Namespace) -> int:
    console = Console()
    domain, _ = models.domain_of(options)
    try:
        model, known = models.model_of(options)
        shape = options.input_shape or known
        if domain is not None:
            domain = models.fitted(options.model, known, domain, options)
            shape = domain.input_shape
        if shape is None:
            raise CaptureError(
                f"Say which shape one input of {options.model} has: --input-shape 2, or 1,28,28."
            )
        program = capture(model, shape, output=options.result)
    except UnsupportedOpError as error:  # of an ONNX file, or when it is captured
        console.out(_obstacles(options.model, error))
        return 1
    console.out(f"{options.model} is supported.\n\n{_description(program)}")
    if domain is not None and program.layers:
        console.out(f"\nOn this domain: {estimate(model, domain, output=options.result)}")
    return 0


def _obstacles(model: str, error: UnsupportedOpError) -> str:
    """Return a list of the unsupported operations, with their places and the reasons."""
    count = len(error.ops)
    stand = "operation stands" if count == 1 else "operations stand"
    width = max(len(op.name) for op in error.ops)
    lines = []
    for op in error.ops:
        where = f", {op.location}" if op.location else ""
        lines += [f"  {op.name:<{width}}  {op.target}{where}", f"  {'':<{width}}  {op.reason}", ""]
    found = f"{model} is not supported: {count} {stand} in the way.\n\n" + "\n".join(lines)
    if error.advice is not None:
        return f"{found}{error.advice}"
    if all(op.settled for op in error.ops):
        return found.rstrip()
    if all(op.settled or option("smooth", "") in op.reason for op in error.ops):
        return (
            f"{found}\nWith --smooth, functions of one variable are replaced by linear pieces, and "
            "the\nerror of the outputs has a guaranteed bound."
        )
    return (
        f"{found}\nReplace each of them; splinecam ops lists what is supported. Operations that "
        "are\ncontinuous and piecewise linear can be registered: splinecam.register_op."
    )


def _description(program: Program) -> str:
    """Return a description of the input, the output, and the layers with their units."""
    layers = program.layers
    sizes = [prod(layer.shape) for layer in layers]
    rows = [("layer", "operation", "input shape", "units")]
    for layer, size in zip(layers, sizes, strict=True):
        rows.append((layer.name, layer.target, str(layer.shape), f"{size:,}"))
    rows.append(("all", "", "", f"{sum(sizes):,}"))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(["", *map(str.ljust, row[:3], wide), row[3].rjust(wide[3])]) for row in rows]
    final = f", before a final {program.stripped}" if program.stripped else ""
    ends = f"input   {program.input_shape}\noutput  {program.output_shape}{final}"
    if not layers:
        return f"{ends}\n\nIt is affine: it has one region."
    return "\n".join([ends, "", *lines])


def _ops(options: Namespace) -> int:
    console = Console()
    if options.markdown:
        console.out(op_table_markdown().rstrip())
        return 0

    def letters(text: str) -> str:
        return text.lower().replace("_", "").replace("nn.", "")

    word = letters(options.search or "")
    rows = [row for row in op_table() if word in letters(f"{row.op} {row.notes}")]
    if not rows:
        raise SplineCamError(
            f"No operation with {options.search!r} is known. Unknown operations are rejected, "
            "unless they are registered: splinecam.register_op."
        )
    blocks = [
        _op_block(title, [row for row in rows if row.kind == kind])
        for kind, title in TITLES.items()
        if any(row.kind == kind for row in rows)
    ]
    console.out("\n\n".join(blocks))
    return 0


def _op_block(title: str, rows: Sequence[OpRow]) -> str:
    """Return a list of operations of one kind; those with the same notes stand together."""
    page = min(100, max(40, shutil.get_terminal_size((100, 24)).columns))
    together: dict[str, list[str]] = {}
    for row in rows:
        together.setdefault(row.notes, []).append(row.op.removeprefix("aten."))
    lines = [title]
    for notes, names in sorted(together.items(), key=lambda item: bool(item[0])):  # without: first
        paragraphs = [("  ", f"{notes}:"), ("    ", ", ".join(names))]
        for indent, text in paragraphs if notes else [("  ", ", ".join(names))]:
            lines += textwrap.wrap(text, page, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines)


def _demo(options: Namespace) -> int:
    claim([options.out / "demo.png"], force=True)
    with printing():
        demo.run(options.out, device=options.device, dpi=options.dpi, steps=options.steps)
    return 0


def _reproduce(options: Namespace) -> int:
    paper = optional("splinecam_paper.experiment", "splinecam reproduce")
    console = Console(options.quiet)
    if options.list:
        console.out(_listing(paper))
        return 0
    names = list(paper.NAMES) if options.names == ["all"] else options.names
    if not names:
        raise SplineCamError("Say which experiment: splinecam reproduce --list names them.")
    for name in names:
        paper.experiment_of(name)  # raises an error before the first one starts
    prepare_pictures()
    device_of(options.device)
    names_of_options = ("out", "data", "device", "seed", "quick")
    given = {name: getattr(options, name) for name in names_of_options}
    setup = paper.Setup(**given, progress=not options.quiet)
    claim([options.out / f"{name}.json" for name in names], force=True)
    for name in names:
        try:
            with console.timed(name), console.progress():
                paths = paper.reproduce(name, setup)[1]
        except DataError as error:
            if not options.quick and options.data is None:
                error.add_note("Or say --quick: small data takes the place of what is missing.")
            raise
        table = next(path for path in paths if path.name == f"{name}.md")
        files = ", ".join(path.name for path in paths)
        written = f"Written to {table.parent} in {console.took(name)}: {files}"
        console.out(f"{table.read_text(encoding='utf-8')}\n{written}\n")
    return 0


def _listing(paper: Any) -> str:
    """Return a list of the experiments, with their places in the paper and the data they need."""
    wide = max(map(len, paper.NAMES))
    lines = []
    for experiment in map(paper.experiment_of, paper.NAMES):
        needs = f"; data: {', '.join(experiment.data)}" if experiment.data else ""
        lines.append(f"{experiment.name:<{wide}}  {experiment.shows}")
        lines.append(f"{'':<{wide}}  {', '.join(experiment.places)}{needs}")
    return "\n".join(lines)


COMMANDS: dict[str, Callable[[Namespace], int]] = {
    "demo": _demo,
    "playground": playground_command,
    "partition": _partition,
    "plot": _plot,
    "stats": _stats,
    "export": _export,
    "difference": _difference,
    "local": _local,
    "surface": surface_command,
    "view": view_command,
    "check": _check,
    "check-property": check_property_command,
    "ops": _ops,
    "reproduce": _reproduce,
}
