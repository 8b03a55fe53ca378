"""``flyball record``."""

from pathlib import Path

import click

from flyball_cli.options import Finite, common, configured, progress_bar, until_signal
from flyball_cli.outputs import force_option, output


@click.command("record")
@click.argument("out", type=click.Path(path_type=Path))
@common
@click.option("--for", "for_s", type=Finite(0), help="Seconds to record; until interrupted by default.")
@click.option("--topic", "topics", multiple=True, help="Topic to record; all of ours by default.")
@force_option
def command(
    out: Path,
    config_path: Path | None,
    bootstrap: str | None,
    log_level: str,
    for_s: float | None,
    topics: tuple[str, ...],
    force: bool,
) -> None:
    """Record the streams of a broker, with keys, headers and times, into one Parquet file.

    \b
    Example:
      flyball record monday.parquet --bootstrap kafka-1:9092 --for 3600
    """
    import threading

    from flyball_contracts.kafka.preflight import preflight
    from flyball_contracts.topics import TOPICS
    from flyball_streams.recording.recorder import record

    config = configured(config_path, bootstrap, log_level)
    target = output(out, force=force, beside=[config_path])
    with until_signal() as stop, progress_bar("recording") as progress:
        preflight(config, "recorder", stop=stop)
        if for_s is not None:
            timer = threading.Timer(for_s, stop.set)
            timer.daemon = True
            timer.start()
        report = record(config.kafka, target, topics=topics or tuple(TOPICS), stop=stop, progress=progress)
    rest = "" if report.complete else "; the file can be read, but lacks what the broker did not give at the end"
    click.echo(f"{report.messages} messages in {out}{rest}")
