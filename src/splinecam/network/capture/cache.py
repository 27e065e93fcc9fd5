"""Captures of models that are used again, and the fingerprints that say whether they still hold.

Two fingerprints of a model are equal only if ``torch.export`` would give the same graph. A
fingerprint holds the structure of the model, the shapes and types of its tensors, the code of
``forward`` and of the functions that it names, with the globals, closures and attributes that
these name in turn, and the settings of torch. What it cannot see through raises ``Opaque``: then
nothing is known, and the model has to be exported again.

A model that is captured again has the same graph, unless its fingerprint has changed; only its
weights differ. Nothing in the cache holds the model, or is copied or pickled with it.
"""

from __future__ import annotations

import dis
import functools
import logging
import operator
import types
import weakref
from abc import ABC
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.utils.weak import WeakIdKeyDictionary

from splinecam.network.capture.models import any_mode, widened
from splinecam.network.capture.reading.graph_builder import GraphBuilder
from splinecam.network.capture.tracing.flat_graph import FlatGraph
from splinecam.network.layer_graph import Weight
from splinecam.network.ops import registry as ops
from splinecam.network.ops.register import registrations
from splinecam.network.program import Program, Stage, Step

_ATOMS = (
    *(int, bool, str, bytes, type(None), type(Ellipsis), range, slice),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
_LISTS = (list, tuple, deque)
_DICTS = (dict, OrderedDict, defaultdict, types.MappingProxyType)
_TENSORS = (Tensor, nn.Parameter, nn.Buffer)
_WRAPPERS: dict[type, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    property: ("fget", "fset"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
}
_DESCRIPTORS = (
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
)

# Packages whose functions depend on nothing but their arguments, and on the settings below.
_TRUSTED = frozenset(
    {"torch", "builtins", "math", "cmath", "operator", "_operator", "functools", "itertools"}
    | {"collections", "typing", "typing_extensions", "types", "abc", "dataclasses", "enum", "copy"}
    | {"numbers", "contextlib", "warnings", "einops", "splinecam", "numpy"}
)
# Functions by which code may read what it does not name: attributes, or anything.
_READS_ATTRIBUTES = frozenset(
    {"getattr", "hasattr", "vars", "dir", "__dict__", "__getattr__", "__getattribute__"}
    | {"attrgetter", "methodcaller", "getmembers", "format", "format_map"}
)
_READS_ANYTHING = frozenset(
    {"globals", "locals", "eval", "exec", "compile", "__import__", "import_module", "grad"}
    | {"open", "input", "load", "breakpoint"}
)
_HEAP_TYPE = 1 << 9  # the flag of classes that are made while Python runs
_IMPORT, _MATCH_CLASS = dis.opmap["IMPORT_NAME"], dis.opmap["MATCH_CLASS"]

# What a module holds beside the attributes of its class, and what of that is not used by forward.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_UNUSED = frozenset(
    {"_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"}
    | {"_load_state_dict_post_hooks", "_is_full_backward_hook"}
    | {"_parameters", "_buffers", "_modules", *_HOOKS}
)
_CALLED = ("forward", "__call__", "_wrapped_call_impl", "_call_impl", "__getattr__")
_CONTAINERS = (nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)
_PLAIN = (object, ABC, Generic, Protocol)  # bases that read no attributes
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})
_IGNORED = frozenset(
    {"__doc__", "__module__", "__qualname__", "__dict__", "__weakref__", "__annotations__"}
    | {"__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__match_args__"}
    | {"__dataclass_fields__", "__dataclass_params__", "__repr__", "__str__", "__del__"}
    | {"__firstlineno__", "__static_attributes__", "__annotate__", "__annotate_func__"}
    | {"__slotnames__", "__init_subclass__", "__getstate__", "__setstate__"}
    | {"__reduce__", "__deepcopy__"}
)


class Opaque(Exception):
    """Something that may change without being noticed."""


def fingerprint(model: nn.Module, *others: object) -> list[Any]:
    """What a model, and other objects that are used along with it, depend on."""
    if any_mode() or _has_any_global_hook():  # type: ignore[no-untyped-call]
        raise Opaque
    recorder = _Fingerprint()
    recorder.parts += (torch.get_default_dtype(), str(torch.get_default_device()), registrations())
    recorder.parts += (torch.is_grad_enabled(), torch.backends.mha.get_fastpath_enabled())
    recorder.add_all((model, *others))
    recorder.finish()
    return recorder.parts


class _Fingerprint:
    """Goes through objects and records what they consist of, without keeping the model alive."""

    def __init__(self) -> None:
        self.parts: list[Any] = []  # things that are compared by value, or by identity
        self.seen: dict[int, tuple[int, Any]] = {}  # id -> number, and the object
        self.names: set[str] = set()
        self.waiting: list[tuple[int, str, Any, bool]] = []  # owner, name, value, counts anyway
        self.classes: set[type] = set()
        self.built: set[int] = set()  # numbers of classes whose objects code may make
        self.any_attribute = False

    def finish(self) -> None:
        """Follow all attributes that the code names."""
        while ready := [entry for entry in self.waiting if self._counts(*entry)]:
            self.waiting = [entry for entry in self.waiting if not self._counts(*entry)]
            for owner, name, value, _ in ready:
                self.parts += (owner, name)
                self.add(value)

    def _counts(self, owner: int, name: str, value: Any, always: bool) -> bool:
        if name in _CONSTRUCTORS:
            built = owner in self.built or not self.names.isdisjoint(("type", "__class__"))
            return built or self.any_attribute
        return always or self.any_attribute or name in self.names

    def add(self, value: Any, names: tuple[str, ...] = ()) -> None:
        """Record a value; names: what code may look up in it, if it is a Python module."""
        kind = type(value)
        if kind in _ATOMS:
            self.parts += (kind, value)
        elif kind is float or kind is complex:
            self.parts += (kind, repr(value))
        elif isinstance(value, types.ModuleType):
            self._python_module(value, names)
        elif id(value) in self.seen:
            self.parts += ("again", self.seen[id(value)][0])
        else:
            self._number(value)
            self._new(kind, value)

    def _new(self, kind: type, value: Any) -> None:
        if isinstance(value, nn.Module):
            self._module(value)
        elif kind is types.FunctionType:
            self._function(value)
        elif isinstance(value, type):
            self._class(value)
            self.built |= {self._number(b) for b in value.__mro__ if id(b) in self.seen}
        elif kind in _LISTS:
            self.parts += (kind, len(value))
            self.add_all(value)
        elif kind in _DICTS:
            self.parts += (kind, len(value))
            self.add_all(part for pair in value.items() for part in pair)
            self.add(getattr(value, "default_factory", None))
        elif kind in (set, frozenset) and all(type(item) in _ATOMS for item in value):
            self.parts += (kind, frozenset((type(item), item) for item in value))
        elif kind is types.SimpleNamespace:
            self.add(vars(value))
        elif kind in _WRAPPERS:
            self.parts.append(kind)
            self.add_all(getattr(value, name) for name in _WRAPPERS[kind])
        elif kind in _DESCRIPTORS:
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, (type, types.ModuleType)):
                raise Opaque  # a method of an object that has a state
            self.parts.append(value)
        elif isinstance(value, Enum):
            self.add(kind)
            self.parts.append(value.name)
        elif kind in (torch.no_grad, torch.enable_grad):
            self.parts.append(kind)
        elif isinstance(value, logging.Logger):
            self.parts += (logging.Logger, value.name)
        elif kind.__module__ in ("torch._ops", "typing", "torch._jit_internal"):
            self.parts.append(weakref.ref(value) if kind.__module__ == "torch._ops" else str(value))
        else:
            self._object(kind, value)

    def _number(self, value: Any) -> int:
        """The number of an object, which stays alive until all is recorded."""
        return self.seen.setdefault(id(value), (len(self.seen), value))[0]

    def add_all(self, values: Iterable[Any]) -> None:
        for value in values:
            self.add(value)

    def _module(self, module: nn.Module) -> None:
        kind, state = type(module), vars(module)
        if isinstance(module, torch.jit.ScriptModule):
            raise Opaque
        self._class(kind)
        own = self._number(module)
        for tensors in (module._parameters, module._buffers):
            self.parts.append(len(tensors))
            for name, tensor in tensors.items():
                self.parts.append(name)
                self._tensor(tensor)
        for name in _HOOKS:
            if state[name]:
                self.add(state[name])
        always = _inner_workings(kind)
        self.parts.append(module.training)
        self.waiting += [
            (own, name, value, always or name in _CALLED)
            for name, value in state.items()
            if name not in _UNUSED
        ]
        self.parts.append(len(module._modules))
        for name, child in module._modules.items():
            self.parts.append(name)
            self.add(child)

    def _tensor(self, tensor: Tensor | None) -> None:
        if tensor is None:
            self.parts.append(None)
            return
        if type(tensor) not in _TENSORS:
            raise Opaque
        self.parts += (self._number(tensor), type(tensor), tensor.shape, tensor.stride())
        self.parts += (tensor.dtype, tensor.device, tensor.layout, tensor.requires_grad)

    def _object(self, kind: type, value: Any) -> None:
        """Record an object of a class that is written in Python."""
        if is_dataclass(kind) and kind.__module__.startswith("splinecam."):
            self.parts.append(kind)  # as the steps of a frozen model, which are all that they hold
            self.add_all(getattr(value, field.name) for field in fields(kind))
            return
        if _trusted(kind.__module__) or not all(map(_in_python, kind.__mro__[:-1])):
            raise Opaque
        self._class(kind)
        own = self._number(value)
        state = dict(getattr(value, "__dict__", {}))
        for base in kind.__mro__:
            slots = vars(base).get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else slots
            state |= {name: getattr(value, name) for name in names if hasattr(value, name)}
        always = is_dataclass(kind) or any(
            _trusted(base.__module__) for base in kind.__mro__ if base not in _PLAIN
        )
        self.waiting += [(own, name, item, always) for name, item in state.items()]

    def _class(self, kind: type) -> None:
        self.parts.append(weakref.ref(kind))
        if kind in self.classes:
            return
        self.classes.add(kind)
        if issubclass(kind, nn.Module):
            self.add_all(getattr(kind, name, None) for name in _CALLED)
        for base in kind.__mro__:
            if _trusted(base.__module__):
                continue
            if type(base).__module__ not in ("builtins", "abc", "enum") or not _in_python(base):
                raise Opaque
            number = self._number(base)
            always = issubclass(base, nn.Module) and _inner_workings(base)
            for name, member in list(vars(base).items()):
                if name not in _IGNORED and not _generated(base, member):
                    dunder = name.startswith("__") and name not in _CONSTRUCTORS
                    self.waiting.append((number, name, member, always or dunder))

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        self.parts.append(code)
        self.add_all((function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                raise Opaque from None
            self.add(content)
        space = function.__globals__
        if _trusted(str(space.get("__name__"))) and code.co_filename == space.get("__file__"):
            return
        self.add_all(vars(function).values())
        names = _names_of(code)
        if not _READS_ANYTHING.isdisjoint(names):
            raise Opaque
        self.any_attribute |= not _READS_ATTRIBUTES.isdisjoint(names)
        self.names.update(names)
        for name in names:
            if name in space:
                self.parts.append(name)
                self.add(space[name], names)

    def _python_module(self, module: types.ModuleType, names: tuple[str, ...]) -> None:
        """Record what code may look up by these names in a Python module."""
        self.parts.append(module.__name__)
        space = vars(module)
        if not _trusted(module.__name__) and "__file__" not in space:
            raise Opaque
        for name in names:
            if name in space:
                value = space[name]
                self.parts.append(name)
                if isinstance(value, types.ModuleType) and value.__name__ == "torch":
                    continue
                self.add(value, tuple(other for other in names if other != name))


def _inner_workings(kind: type) -> bool:
    """Whether code of torch, which is not looked at, may read all attributes of a module."""
    return any(_trusted(base.__module__) for base in kind.__mro__[:-1] if base not in _CONTAINERS)


def _generated(kind: type, member: Any) -> bool:
    """Whether a method was written by ``dataclass``: it reads the fields, which all count."""
    code = getattr(member, "__code__", None)
    return is_dataclass(kind) and code is not None and code.co_filename == "<string>"


def _trusted(name: str) -> bool:
    return name.partition(".")[0] in _TRUSTED


def _in_python(kind: type) -> bool:
    """Whether a class was made by a class statement, and so keeps its state in attributes."""
    in_c = any(type(member) is types.MethodDescriptorType for member in vars(kind).values())
    return bool(kind.__flags__ & _HEAP_TYPE) and not in_c


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a piece of code, and in the functions inside it."""
    operations = code.co_code[::2]
    if _IMPORT in operations:
        raise Opaque
    names = {*code.co_names, *(("getattr",) if _MATCH_CLASS in operations else ())}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            names.update(_names_of(part))
    return tuple(sorted(names))


_MOST_CAPTURES = 4  # of one model: input shapes, devices and outputs
_MOST_BYTES = 1 << 26  # that a template may hold, most of them in the tables of maxima
_RULES = (
    *(ops.AffineRule, ops.PiecewiseRule, ops.MaximumRule, ops.SortRule),
    *(ops.SmoothRule, ops.TerminalRule),
)


@dataclass(frozen=True)
class CachedCapture:
    """A capture of a model, without its weights."""

    fingerprint: list[Any]  # what the graph depends on
    content: Template | FlatGraph
    opaque: tuple[int, ...]  # the numbers of registered modules in the graph


_MODELS: Any = WeakIdKeyDictionary()  # model -> key -> CachedCapture, under the lock EXCLUSIVE


def lookup(model: nn.Module, key: Any) -> CachedCapture | None:
    """The capture that was stored under a key, if any."""
    found: CachedCapture | None = _MODELS.get(model, {}).get(key)
    return found


def store(
    model: nn.Module, key: Any, known: list[Any], content: Any, opaque: tuple[int, ...] = ()
) -> None:
    """Store a capture under a key, if it has content; only the latest captures remain."""
    if content is None:
        return
    captures = _MODELS.setdefault(model, {})
    captures.pop(key, None)
    captures[key] = CachedCapture(known, content, opaque)
    while len(captures) > _MOST_CAPTURES:
        del captures[next(iter(captures))]


def share(model: nn.Module, other: nn.Module) -> None:
    """Let a copy of a model use its captures, as far as the fingerprints agree."""
    _MODELS[other] = dict(_MODELS.get(model, {}))


def clear(model: nn.Module) -> None:
    """Remove all captures of a model."""
    _MODELS.pop(model, None)


@dataclass(frozen=True)
class Template:
    """A program with a ``Weight`` in place of each weight; names: of these in the model."""

    program: Program
    names: tuple[str, ...]

    def filled(self, tensors: Mapping[str, Tensor]) -> Program:
        """The program with these weights, by their names."""
        weights = {name: widened(tensors[name], self.program.device) for name in self.names}
        return _with_arguments(
            self.program, lambda item: weights[item.name] if type(item) is Weight else item
        )


def template_of(
    graph: FlatGraph, needed: set[fx.Node], builder: GraphBuilder, program: Program
) -> Template | None:
    """A program as a template; None if more than arguments of its steps depends on weights."""
    depends = builder.masks or builder.choices or builder.constants.steps or builder.batch.known
    tensors = [value for layer in program.layers for value in vars(layer).values()]
    size = sum(value.nbytes for value in tensors if isinstance(value, Tensor))
    if depends or size > _MOST_BYTES:
        return None
    steps = {step.name: step for stage in program.stages for step in stage.steps}
    slots: dict[int, Weight] = {}
    for node in needed:
        if node in graph.constants:
            slots[id(builder.values[node])] = Weight(graph.constants[node][0])
        elif node.op == "call_function":
            known = isinstance(ops.rule_of(node.target), _RULES) or node.target is operator.getitem
            weights = [source for source in node.all_input_nodes if source in graph.constants]
            if not known or not all(_takes(steps, node, builder.values[w]) for w in weights):
                return None
    names = tuple(dict.fromkeys(slot.name for slot in slots.values()))
    return Template(_with_arguments(program, lambda item: slots.get(id(item), item)), names)


def _takes(steps: dict[str, Step], node: fx.Node, weight: Any) -> bool:
    """Whether a call has become a step that has the weight itself for an argument."""
    step = steps.get(node.name)
    if step is None or not isinstance(weight, Tensor):
        return False
    return any(item is weight for item in (*step.args, *step.kwargs.values()))


def _with_arguments(program: Program, change: Callable[[Any], Any]) -> Program:
    """A copy of a program with all arguments of its steps changed."""

    def step(item: Step) -> Step:
        args = tuple(map(change, item.args))
        kwargs = {key: change(value) for key, value in item.kwargs.items()}
        return replace(item, args=args, kwargs=kwargs)

    def stage(item: Stage) -> Stage:
        return replace(item, steps=tuple(map(step, item.steps))) if item.steps else item

    return program.with_constants(tuple(map(stage, program.stages)))
