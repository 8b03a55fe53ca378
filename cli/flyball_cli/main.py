"""The ``flyball`` command: one group, one file for each subcommand, imported when it is requested."""

import errno
import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any

import click

from flyball_cli.extras import extra_of, remedy
from flyball_cli.signals import Ended
from flyball_contracts.errors import FlyballError

COMMANDS = {
    "demo": "Run the whole loop on this machine: broker, fleet, worker, actuator, dashboard.",
    "agent": "Measure this node and send telemetry.",
    "feed": "Send carbon and price curves of the grid.",
    "worker": "Run the stream worker: profile, forecast, size, time, decide.",
    "actuate": "Carry decisions out, behind the guard; dry-run unless configured otherwise.",
    "controller": "Read nodes, pods, workloads and policies of a Kubernetes cluster.",
    "dashboard": "Serve the live page.",
    "sink": "Write the streams to InfluxDB.",
    "fleet": "Send the telemetry of a simulated fleet.",
    "record": "Record the streams of a broker into a file.",
    "replay": "Replay a recording: offline through the engine, or to a broker.",
    "explain": "Say of one decision why it was made, what was done, and what was seen.",
    "audit": "Verify an actuator's audit trail, or show what it has of one decision.",
    "platforms": "List what each driver promises, and what it was seen to do.",
    "incidents": "List, acknowledge, silence and label what is wrong, and send it to Alertmanager or a webhook.",
    "nodes": "Remove nodes that are gone for good.",
    "waste": "List the GPU time that is paid for and not used, and what would take it.",
    "policy": "Try the guard's policies on recorded decisions.",
    "stop": "Let no actuator begin anything more, in some cells or all.",
    "resume": "End a stop.",
    "approve": "Agree to a decision that takes a person's approval.",
    "controls": "List the stops and approvals that stand.",
    "diff": "Compare the decisions of two replays, by target and time.",
    "backtest": "Try scaling policies on a recording or a trace, at equal service.",
    "import": "Turn a public trace into a recording.",
    "workloads": "Declare, list, show and remove workloads.",
    "keys": "Make and show the keys with which workers sign decisions.",
    "topics": "List or create the topics.",
    "schema": "Print or write the JSON Schemas and the AsyncAPI document.",
    "config": "Print example configurations.",
    "doctor": "Say what this node can measure and what it can reach, and why not.",
    "webhook": "Try a server of your own behind driver webhook, without changing anything.",
    "health": "Exit 0 when a service's health file is fresh.",
}

GROUPS = ("services", "decisions", "recordings", "setup")


class Lazy(click.Group):
    """A group that imports a subcommand's module only when it runs: ``flyball agent`` needs no JAX."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of :data:`COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one command; ``None`` for a name that does not exist."""
        if cmd_name not in COMMANDS:
            return None
        names = (f"flyball_cli.commands.{group}.{cmd_name}_command" for group in GROUPS)
        module = importlib.import_module(next(name for name in names if find_spec(name)))
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Find a command; a misspelt one gets the nearest name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"there is no command {args[0]!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="flyball")
def flyball() -> None:
    """Flyball governs GPU fleets: telemetry in, scale, migrate and preempt decisions out.

    \b
    Start here:
      flyball demo                        the whole loop, live, on this machine
      flyball doctor                      what this node can measure
      flyball replay recording.parquet    what would have been decided
    """


def main() -> None:
    """Run the command; an error that has a remedy is printed on standard error, and the exit status is 2."""
    try:
        flyball.main(prog_name="flyball", standalone_mode=False)
    except FlyballError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(2)
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see `{context.command_path} --help`)" if context else ""
        click.echo(f"error: {error.format_message().replace(chr(10), ' ')}{hint}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except SystemError as error:
        # A signal came while a C library ran our callback: the signal's exception is the cause of the library's.
        if not isinstance(error.__cause__, Ended):
            raise
        sys.exit(error.__cause__.code)
    except BrokenPipeError:
        # The reader of our output has closed the pipe; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            if error.errno not in _FULL:
                raise
            click.echo(f"error: the output cannot be written: {error.strerror}", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(2)
        click.echo(f"error: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        extra = extra_of(error.name or "")
        if extra is None:
            raise
        click.echo(f"error: this command needs more packages: {remedy(extra)} (missing: {error.name})", err=True)
        sys.exit(2)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
