"""A page that stands alone: what was asked, what it costs at equal service, why the largest decisions were taken."""

import html
from datetime import UTC, datetime

from flyball_streams.backtest.events import words as single
from flyball_streams.backtest.events.picture import slopes
from flyball_streams.backtest.plots import colours, dated, day, faults, pareto
from flyball_streams.backtest.safety import TITLES
from flyball_streams.backtest.study import Study
from flyball_streams.backtest.words import (
    COLUMNS,
    FAULT_COLUMNS,
    UNKNOWN,
    against,
    cells,
    fault_cells,
    headline,
    method,
    percent,
)

IN_TIME = COLUMNS.index("in time")
CSS = """
:root{color-scheme:light}
body{margin:0;background:#f6f7f9;color:#1d2430;
  font:15px/1.5 system-ui,Segoe UI,Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px}
h2{font-size:18px;margin:36px 0 10px}
p{margin:6px 0}
.quiet{color:#6b7486}
.card{background:#fff;border:1px solid #e3e6ec;border-radius:10px;padding:18px 20px;overflow-x:auto}
.below{margin-top:12px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:22px 0}
.tile{background:#fff;border:1px solid #e3e6ec;border-radius:10px;padding:14px 16px}
.tile b{display:block;font-size:23px;font-weight:650}
.tile span{color:#6b7486;font-size:13px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 9px;border-bottom:1px solid #eef0f4;white-space:nowrap;font-size:14px}
th{color:#6b7486;font-weight:500;font-size:12.5px}
td:first-child,th:first-child,.faults th:nth-child(2){text-align:left}
tr.ours td{font-weight:650;background:#f2f7ff}
td.bad{color:#b0392b}
td.good{color:#1f7a46}
td.say{white-space:normal;text-align:left}
i.dot{display:inline-block;width:9px;height:9px;border-radius:5px;margin-right:7px}
svg{width:100%;height:auto;font-family:system-ui,Segoe UI,Roboto,sans-serif}
"""


def page(study: Study) -> str:
    """Return the page as one HTML document without any reference to another file."""
    title = f"Backtest of {study.name}"
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{_e(title)}</title><style>{CSS}</style></head><body><main>",
            f'<h1>{_e(title)}</h1><p class="quiet">{_e(study.about)}</p><p>{_e(headline(study))}</p>',
            _tiles(study),
            f'<h2>What service costs</h2><div class="card">{pareto(study)}</div>',
            '<p class="quiet">Lower and further right is better. Each point is a setting that the first half of the '
            "data left over, measured on the second half.</p>",
            f'<h2>Cost and carbon</h2><div class="card">{_table(study)}</div>',
            f'<h2>The day with the highest demand</h2><div class="card">{day(study)}</div>',
            f'<h2>The largest decisions</h2><div class="card">{_decisions(study)}</div>',
            _confirmed(study),
            _faults(study),
            "<h2>How this was measured</h2>",
            *(f'<p class="quiet">{_e(line)}</p>' for line in method(study)),
            "</main></body></html>",
        )
    )


def _e(text: str) -> str:
    return html.escape(text, quote=True)


def _tiles(study: Study) -> str:
    ours = next((row for row in study.rows if row.ours), None)
    tiles: list[tuple[str, str]] = []
    if ours is not None:
        tiles.append((against(ours), f"GPU time against tuned {study.base.upper()} at {percent(study.target)}"))
        tiles.append((percent(ours.attainment), f"of requests within {study.delay_s} s, setting frozen before"))
        tiles.append((percent(ours.utilisation), "of the billed time was work"))
        if ours.gap_closed is not None and ours.gap_closed <= 1:
            tiles.append((f"{100 * ours.gap_closed:.0f} %", "of the gap to a perfect forecast closed"))
    static = next((row for row in study.rows if row.key == "static"), None)
    if ours is not None and static is not None and ours.equal_hours and static.equal_hours:
        saved = 100 * (ours.equal_hours / static.equal_hours - 1)
        tiles.append((f"{saved:+.0f} %", "GPU time against a fixed number of replicas"))
    return (
        '<div class="tiles">'
        + "".join(f'<div class="tile"><b>{_e(a)}</b><span>{_e(b)}</span></div>' for a, b in tiles)
        + "</div>"
    )


def _table(study: Study) -> str:
    colour = colours(study)
    rows: list[str] = []
    for row in study.rows:
        tone = "" if row.ratio is None or row.ratio == 1 else "good" if row.ratio < 1 else "bad"
        late = "bad" if row.attainment is not None and row.attainment < study.target else ""
        tones = {0: tone, IN_TIME: late}
        said = "".join(f'<td class="{tones.get(i, "")}">{_e(cell)}</td>' for i, cell in enumerate(cells(row)))
        dot = f'<i class="dot" style="background:{colour[row.key]}"></i>'
        mark = ' class="ours"' if row.ours else ""
        rows.append(f"<tr{mark}><td>{dot}{_e(row.title)}</td>{said}</tr>")
    return _grid(("policy", *COLUMNS), rows)


def _confirmed(study: Study) -> str:
    found = study.confirmed
    if found is None:
        return ""
    colour = colours(study)
    rows: list[str] = []
    for row in found.rows:
        said = "".join(f"<td>{_e(cell)}</td>" for cell in single.cells(row))
        mark = ' class="ours"' if row.ours else ""
        dot = f'<i class="dot" style="background:{colour[row.key]}"></i>'
        rows.append(f"<tr{mark}><td>{dot}{_e(row.title)}</td>{said}</tr>")
    swaps = "".join(f'<p class="quiet">{_e(line)}</p>' for line in single.swaps(found))
    return (
        f"<h2>Does a second engine agree?</h2><p>{_e(single.verdict(found))}</p>"
        f'<div class="card">{slopes(found, colour)}</div>'
        f'<div class="card below faults">{_grid(("policy", *single.COLUMNS), rows)}</div>{swaps}'
    )


def _faults(study: Study) -> str:
    if not study.safety:
        return ""
    colour, titles = colours(study), {row.key: row.title for row in study.rows}
    rows: list[str] = []
    for o in study.safety:
        tones = {0: "bad" if o.attainment < study.target else "", 5: "good" if o.passed else "bad"}
        said = "".join(f'<td class="{tones.get(i, "")}">{_e(cell)}</td>' for i, cell in enumerate(fault_cells(o)))
        dot = f'<i class="dot" style="background:{colour[o.policy]}"></i>'
        rows.append(f'<tr><td>{dot}{_e(titles[o.policy])}</td><td class="say">{_e(TITLES[o.fault])}</td>{said}</tr>')
    return (
        f'<h2>When things go wrong</h2><div class="card">{faults(study)}</div>'
        f'<div class="card below faults">{_grid(("policy", "fault", *FAULT_COLUMNS), rows)}</div>'
    )


def _grid(head: tuple[str, ...], rows: list[str]) -> str:
    return f"<table><tr>{''.join(f'<th>{_e(h)}</th>' for h in head)}</tr>{''.join(rows)}</table>"


def _decisions(study: Study) -> str:
    if not study.decisions:
        return '<p class="quiet">Our policy changed nothing in the second half.</p>'
    base = study.base.upper()
    head = ("time", "replicas", "bound by", "why", f"{base} had", f"{base} a cold start later")
    rows: list[str] = []
    for d in study.decisions:
        when = datetime.fromtimestamp(d.time_s, UTC)
        said = f"{when:%a %H:%M:%S}" if dated(study) else f"day {when.timetuple().tm_yday} {when:%H:%M:%S}"
        had, later = (UNKNOWN if x is None else str(x) for x in (d.baseline, d.baseline_later))
        rows.append(
            f"<tr><td>{said}</td><td>{d.before} → {d.after}</td><td>{_e(d.rule)}</td>"
            f'<td class="say">{_e(d.reason)}</td><td>{had}</td><td>{later}</td></tr>'
        )
    return _grid(head, rows)
