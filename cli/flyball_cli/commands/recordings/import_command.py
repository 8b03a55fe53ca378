"""``flyball import``."""

from pathlib import Path

import click

from flyball_cli.options import progress_bar
from flyball_cli.outputs import force_option, output


@click.command("import")
@click.argument("kind", required=False)
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.argument("out", required=False, type=click.Path(path_type=Path))
@force_option
def command(kind: str | None, source: Path | None, out: Path | None, force: bool) -> None:
    """Turn the folder SOURCE of a public trace of KIND into the recording OUT; without arguments, list the kinds.

    \b
    Example:
      flyball import alibaba_gentd26 data/alibaba_gentd26 gentd26.parquet
    """
    from flyball_streams.importers import IMPORTERS

    if kind is None:
        for name, importer in sorted(IMPORTERS.items()):
            click.echo(f"{name:24}{importer.about}")
        return
    if kind not in IMPORTERS:
        raise click.UsageError(f"there is no importer {kind!r}; known: {', '.join(sorted(IMPORTERS))}")
    if source is None or out is None:
        raise click.UsageError("name the folder of the trace and the file to write")
    target = output(out, force=force, beside=[source])
    if target.is_relative_to(source.resolve()):
        raise click.UsageError(f"{out}: lies in {source}, which is read; name a file outside")
    with progress_bar(f"importing {kind}") as progress:
        report = IMPORTERS[kind].convert(source, target, progress=progress)
    span_h = (report.to_ns - report.from_ns) / 3.6e12
    click.echo(f"{report.messages} messages over {span_h:.1f} h in {out}")
    for reason, count in report.left_out.items():
        click.echo(f"  left out: {count} ({reason})")
