"""What callers give for ``refine=``, read into the question that a partition is to answer."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, get_args

from splinecam._util.options import kind_of
from splinecam._util.text import did_you_mean
from splinecam.errors import SplineCamError
from splinecam.files.formulas import Formula
from splinecam.files.properties import Conjunction, OutputCondition, Property, PropertyCase
from splinecam.geometry.domain import Domain
from splinecam.network.program import Program
from splinecam.questions.boundary import Kind, levels_of, output_index, pair_of
from splinecam.questions.preimage import unsafe_outputs
from splinecam.questions.wanted import Wanted
from splinecam.stores.manifest import weights_digest

_Pair = tuple[int | str, int | str]
_Conditions = Property | PropertyCase | OutputCondition | Conjunction | Formula
Refine = str | _Pair | Mapping[str, Any] | _Conditions | None
"""What regions are divided for, as ``sc.partition`` describes it; None for all linear regions."""

ENTRIES = ("classes", "kind", "level", "output")
_EXAMPLES = '"boundary", a pair of classes, {"level": 0.5, "output": 2}, or a condition'


def check_refine(refine: Any) -> None:
    """Raise an error for what no network can be refined for."""
    if isinstance(refine, str):
        if refine != "boundary":
            hint = did_you_mean(refine, ["boundary"])
            raise ValueError(f"refine is {refine!r}: give {_EXAMPLES}.{hint}")
    elif isinstance(refine, Mapping):
        wrong = next((key for key in refine if key not in ENTRIES), None)
        if wrong is not None:
            hint = did_you_mean(str(wrong), ENTRIES)
            raise ValueError(f"refine has no entry {wrong!r}: the entries are {ENTRIES}.{hint}")
        if not refine or ("output" in refine and "level" not in refine):
            raise ValueError(f"refine is {refine!r}: say which level, kind or classes")
        if "level" in refine and not refine.keys() <= {"level", "output"}:
            raise ValueError("refine is either about a level, or about kind and classes")
    elif not isinstance(refine, _Conditions | tuple | list):
        raise TypeError(f"refine must be {_EXAMPLES}, not {kind_of(refine)}")


def wanted_of(
    refine: Any, domain: Domain, n: int, names: tuple[str, ...] | None, stripped: str | None
) -> Wanted:
    """The question about n outputs on a domain; names: of classes.

    stripped: the final softmax, sigmoid or tanh that was left out.
    """
    if isinstance(refine, _Conditions):
        condition = unsafe_outputs(refine, domain, n, stripped)[0]
        return Wanted("condition", condition=condition)
    if isinstance(refine, Mapping) and "level" in refine:
        levels = tuple(levels_of(refine["level"]).tolist())
        if not levels:
            raise ValueError("refine has no level: give one, or several")
        if n > 1 and refine.get("output") is None:
            example = 'refine={"level": 0.5, "output": 0}, or output=0 of sc.level_set'
            raise SplineCamError(f"The model has {n} outputs: say which one, as in {example}.")
        return Wanted("level", None, output_index(n, refine.get("output")), levels)
    given = {} if refine == "boundary" else refine
    if not isinstance(given, Mapping):
        given = {"classes": given}
    kind, classes = given.get("kind", "argmax"), given.get("classes")
    if kind not in get_args(Kind):
        raise ValueError(f"kind is {kind!r}; choose one of {', '.join(map(repr, get_args(Kind)))}")
    if n == 1 and kind == "argmin":
        raise SplineCamError('The model has one output: kind="argmin" needs several.')
    unknown = [each for each in classes or () if isinstance(each, str)]
    if names is None and unknown:
        raise ValueError(f"there is no class {unknown[0]!r}: give names=, those of all classes")
    pair = None if classes is None else pair_of(classes, max(n, 2), names)
    return Wanted.classes(n, kind, 0.0, pair if n > 2 else None)


def wanted_along(refine: Any, program: Program) -> Wanted | None:
    """The question about the class along paths, None for all pieces."""
    if refine is None:
        return None
    n = prod(program.output_shape)
    if not isinstance(refine, _Conditions):
        wanted = wanted_of(refine, Domain.box(0, 1), n, None, program.stripped)
        if wanted.pair is None and wanted.aspect == ("level" if n == 1 else "argmax"):
            return wanted
    raise TypeError(
        'a path is divided for refine="boundary", or, with a single output, for {"level": 0.5}'
    )


def question_facts(refine: Any, wanted: Wanted | None) -> dict[str, Any] | None:
    """What tells one question from another in a file of JSON; wanted: of one domain."""
    if wanted is None:
        return None
    about, tensors = wanted.written()
    for k, case in enumerate(getattr(refine, "cases", ())):  # on other domains, others may matter
        found = {**vars(case.condition), "lo": case.lo, "hi": case.hi}
        tensors |= {f"{k}_{name}": each for name, each in found.items() if each is not None}
    return {**about, "condition": weights_digest(tensors)}
