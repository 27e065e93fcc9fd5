"""The command ``splinecam``: partitions, pictures and statistics from a terminal.

``parser`` has the options and their help, ``words`` what may be written for them and ``usage``
which of them go together; ``commands`` has what each command does; ``models`` and ``exported``
find the network, ``samples`` the domain; ``console`` writes; ``completion`` is for shells. Exit
codes: 0 success, 1 an error of the user's or the model's, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import suppress

from splinecam._util.files import reason_of
from splinecam.cli.completion import print_script
from splinecam.cli.console import complain, in_options, printing
from splinecam.cli.parser import make_parser
from splinecam.cli.usage import parse
from splinecam.errors import SplineCamError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and answer with its exit code.

    >>> main(["ops", "--search", "relu6"])
    Piecewise linear, of one variable
      knots 0 and 6:
        relu6
    0
    """
    options = parse(argv)
    if options.command is None:
        make_parser().print_help()
        return 0
    try:
        return _run(options)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # whoever read the results has seen enough
        _print_no_more()
        return 0
    except Exception as error:
        if any(isinstance(cause, KeyboardInterrupt) for cause in _causes(error)):
            return _interrupted()
        complain(_told(error, debug=options.debug))
        _print_no_more()
        return 1


def _run(options: Namespace) -> int:
    if options.command == "completion":  # nor need a shell that starts
        return print_script(make_parser(), options)
    from splinecam.cli.commands import COMMANDS  # so that --help need not wait for it

    code = COMMANDS[options.command](options)
    if sys.stdout is not None:
        with printing():  # a broken pipe or a full disk is to be met here
            sys.stdout.flush()
    return code


def _print_no_more() -> None:
    """Let go what cannot be printed; Python would try once more at its end."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted() -> int:
    complain("\nInterrupted.\n")
    return 130


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what led to it, and so on: modules half imported fail for another reason."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _told(error: Exception, *, debug: bool) -> str:
    """An error as the user is told of it."""
    if debug:
        return "".join(traceback.format_exception(error))
    notes = "".join(f"{note}\n" for note in getattr(error, "__notes__", ()))
    if isinstance(error, SplineCamError):
        return f"splinecam: error: {in_options(str(error))}\n{notes}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"splinecam: error: {error.filename}: {reason_of(error)}.\n{notes}"
    if isinstance(error, (OSError, MemoryError)):
        return f"splinecam: error: {str(error) or type(error).__name__}\n{notes}"
    return (
        f"splinecam: unexpected {type(error).__name__}: {error}\n"
        f"This may be a fault of SplineCam; --debug shows where it happened.\n{notes}"
    )
