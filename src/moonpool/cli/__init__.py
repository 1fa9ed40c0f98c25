"""The command line. Every command lies in a module of its own, imported when it is used."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from moonpool.errors import ConfigError, MoonpoolError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130

# command → module and name of its click command, in the order of --help.
COMMANDS: dict[str, str] = {
    "up": "moonpool.cli.up:up",
    "node": "moonpool.cli.node:node",
    "directory": "moonpool.cli.directory:directory",
    "conductor": "moonpool.cli.conductor:conductor",
    "put": "moonpool.cli.objects:put",
    "get": "moonpool.cli.objects:get",
    "ls": "moonpool.cli.objects:ls",
    "rm": "moonpool.cli.objects:rm",
    "pin": "moonpool.cli.objects:pin",
    "unpin": "moonpool.cli.objects:unpin",
    "stat": "moonpool.cli.stat:stat",
    "top": "moonpool.cli.top:top",
    "why": "moonpool.cli.why:why",
    "doctor": "moonpool.cli.doctor:doctor",
    "config": "moonpool.cli.config:config",
    "verify": "moonpool.cli.verify:verify",
    "bench": "moonpool.cli.bench:bench",
    "sim": "moonpool.cli.sim:sim",
    "vllm-args": "moonpool.cli.vllm_args:vllm_args",
    "version": "moonpool.cli.version:version",
}


class Commands(dict[str, click.Command]):
    """The commands that this installation has; each is imported when it is asked for."""

    def __iter__(self) -> Iterator[str]:
        return (name for name in COMMANDS if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in COMMANDS and _installed(COMMANDS[name])

    def __getitem__(self, name: str) -> click.Command:
        if name not in self:
            raise KeyError(name)
        module, attribute = COMMANDS[name].split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def get(self, name: str, default: Any = None) -> Any:
        """The command of that name, or the default."""
        try:
            return self[name]
        except KeyError:
            return default


def _show_version(context: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from moonpool import _native

        click.echo(f"moonpool {_native.__version__}")
        context.exit()


@click.group(commands=Commands(), context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def moonpool() -> None:
    """One shared KV cache for all the LLM engines of a host.

    `moonpool up` starts it; `moonpool COMMAND --help` explains each command.
    """


def main() -> None:
    """Run the command line of this process; never returns."""
    if sys.argv[0].endswith("__main__.py"):  # `python -m moonpool` is called moonpool in /status too
        sys.argv[0] = "moonpool"
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of one command: 0 worked, 1 a miss or a failure, 2 a wrong call, 130 interrupted."""
    try:
        result = moonpool.main(arguments, prog_name="moonpool", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ending:
        return ending.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (UsageError, ConfigError) as error:
        return _say(error, EXIT_USAGE)
    except MoonpoolError as error:
        return _say(error, EXIT_FAILED)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:  # a file that cannot be written, a full disk
        click.echo(f"moonpool: {error}", err=True)
        return EXIT_FAILED


def _say(error: MoonpoolError, exit_code: int) -> int:
    if isinstance(error, ConfigError) and error.kind == "start_failed":
        exit_code = EXIT_FAILED
    click.echo(f"moonpool: {error}", err=True)
    return exit_code


def _installed(place: str) -> bool:
    return importlib.util.find_spec(place.split(":", maxsplit=1)[0]) is not None
