"""The command ``splinecam``: partitions, pictures and statistics from a terminal.

``parser`` has the options and their types, ``help_texts`` the help, and ``usage`` says which
options go together. ``commands``, ``properties`` and ``viewing`` have a function for each command;
``models`` reads networks, samples and domains, ``pictures`` draws, ``console`` writes. Exit codes:
0 success, 1 an error in the model, the domain or a file, 2 wrong usage, 130 interrupted. The exit
code of ``check-property`` is its verdict: 0 holds, 1 violated, 3 cannot tell; 2 is an error.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from splinecam._util.files import reason_of
from splinecam.cli.console import complain, print_script, printing
from splinecam.cli.parser import make_parser
from splinecam.cli.usage import parse
from splinecam.errors import SplineCamError, on_command_line

__all__ = ["main", "script"]


def script() -> int:
    """Run the command of a process, which ends with it.

    A short command would spend half of its time looking for garbage among what is imported, taking
    all of it down at the end, and letting idle threads spin.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    gc.disable()  # until the modules are there
    code = main()
    if all(each.daemon or each is threading.main_thread() for each in threading.enumerate()):
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

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
        with on_command_line():
            return _run(options)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:  # the reader of the results has stopped
        _drop_output()
        return 0
    except Exception as error:
        if any(isinstance(cause, KeyboardInterrupt) for cause in _causes(error)):
            return _interrupted()
        complain(_message(error, debug=options.debug))
        _drop_output()
        return getattr(options, "error_code", 1)


def _run(options: Namespace) -> int:
    if options.command == "completion":  # without torch: a shell waits for it when it starts
        return print_script(make_parser(), options.shell)
    command = _command_of(options.command)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
    code = command(options)
    if sys.stdout is not None:
        with printing():  # a broken pipe or a full disk shows here
            sys.stdout.flush()
    return code


def _command_of(name: str) -> Callable[[Namespace], int]:
    """Return the function of a command; what others need is not imported for a short one."""
    if name == "check-property":
        from splinecam.cli.properties import check_property_command

        return check_property_command
    from splinecam.cli.commands import COMMANDS  # here, as --help need not wait for torch

    return COMMANDS[name]


def _drop_output() -> None:
    """Drop what cannot be printed; Python would try again at exit."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
        return
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupted() -> int:
    complain("\nInterrupted.\n")
    return 130


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of the cause, and so on."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _message(error: Exception, *, debug: bool) -> str:
    """Return the message about an error."""
    if debug:
        return "".join(traceback.format_exception(error))
    notes = "".join(f"{note}\n" for note in getattr(error, "__notes__", ()))
    if isinstance(error, SplineCamError):
        return f"splinecam: error: {error}\n{notes}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"splinecam: error: {error.filename}: {reason_of(error)}.\n{notes}"
    if isinstance(error, MemoryError):
        notes = (
            "There was no memory left: --memory 2GB, for instance, stays within so much.\n" + notes
        )
    if isinstance(error, (OSError, MemoryError)):
        return f"splinecam: error: {str(error) or type(error).__name__}\n{notes}"
    return (
        f"splinecam: unexpected {type(error).__name__}: {error}\n"
        f"This may be a fault of SplineCam; --debug shows where it happened.\n{notes}"
    )
