"""Completion of commands, options and files by the shell: ``splinecam completion bash``."""

from __future__ import annotations

import sys
from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from splinecam._util.optional import how_to_install, optional

__all__ = ["HELP", "SHELLS", "add_options", "print_script", "script"]

SHELLS = ("bash", "zsh", "fish")
DEVICES = ("auto", "cpu", "cuda")

HELP = f"""\
Needs the package shtab:
  {how_to_install("completion")}
Put the script where the shell looks for it, and start a new shell:
  splinecam completion bash > ~/.local/share/bash-completion/completions/splinecam
  splinecam completion zsh > ~/.zfunc/_splinecam       with ~/.zfunc in $fpath before compinit
  splinecam completion fish > ~/.config/fish/completions/splinecam.fish
"""


def add_options(parser: ArgumentParser) -> None:
    """Add the options of ``splinecam completion``."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"{', '.join(SHELLS)}")


def print_script(parser: ArgumentParser, options: Namespace) -> int:
    """Print the script of a shell and return the exit code."""
    sys.stdout.write(script(parser, options.shell).rstrip("\n") + "\n")
    sys.stdout.flush()
    return 0


def script(parser: ArgumentParser, shell: str) -> str:
    """Return the script with which a shell completes the commands and options of a parser.

    Raises an error that says what to install when shtab is missing.
    """
    shtab = optional("shtab", "Shell completion", "completion")
    for action in _actions(parser):
        completed = _completed(action, shtab)
        if completed is not None:
            action.complete = completed  # type: ignore[attr-defined]
        elif action.dest == "device":
            action.choices = DEVICES
    return str(shtab.complete(parser, shell))


def _actions(parser: ArgumentParser) -> Iterator[Action]:
    """Yield all arguments of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action


def _completed(action: Action, shtab: Any) -> Any:
    """Return how an argument is completed: by folders, by files of some kind, or not (None)."""
    if action.metavar == "DIR":
        return shtab.DIRECTORY
    if action.metavar == "SAVED.npz":
        return shtab.glob("*.npz")
    if action.dest == "subjects":
        return shtab.FILE
    if action.dest == "model":
        return shtab.glob("*.py", "*.pt2")
    return shtab.FILE if action.type is Path else None
