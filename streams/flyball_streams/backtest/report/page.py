"""A self-contained page: the study, the costs at equal service, and explanations of the largest decisions."""

import html
from datetime import UTC, datetime

from flyball_streams.backtest.events import text as single
from flyball_streams.backtest.report.plots import colours, dated, day, faults, pareto, slopes
from flyball_streams.backtest.report.text import (
    COLUMNS,
    FAULT_COLUMNS,
    UNKNOWN,
    against,
    entries,
    fault_entries,
    headline,
    method,
    percent,
    too_short,
)
from flyball_streams.backtest.safety import TITLES
from flyball_streams.backtest.study import Study

IN_TIME = COLUMNS.index("in time")
CSS = """
:root{color-scheme:light dark;--ink:#1d2430;--quiet:#6b7486;--grid:#e3e6ec;--paper:#f6f7f9;--card:#fff;--line:#eef0f4;
  --ours:#f2f7ff;--bad:#b0392b;--good:#1f7a46}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ef;--quiet:#98a2b3;--grid:#2c3442;--paper:#12161d;--card:#1a202a;
  --line:#252d39;--ours:#1c2a41;--bad:#ff8a7a;--good:#63cf94}}
body{margin:0;background:var(--paper);color:var(--ink);
  font:15px/1.5 system-ui,Segoe UI,Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px}
h2{font-size:18px;margin:36px 0 10px}
p{margin:6px 0}
.quiet{color:var(--quiet)}
.card{background:var(--card);border:1px solid var(--grid);border-radius:10px;padding:18px 20px;overflow-x:auto}
.below{margin-top:12px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:12px;margin:22px 0}
.tile{background:var(--card);border:1px solid var(--grid);border-radius:10px;padding:14px 16px}
.tile b{display:block;font-size:23px;font-weight:650}
.tile span{color:var(--quiet);font-size:13px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 7px;border-bottom:1px solid var(--line);white-space:nowrap;font-size:13.5px}
th{color:var(--quiet);font-weight:500;font-size:12.5px;white-space:normal;vertical-align:bottom}
td:first-child,th:first-child,.faults th:nth-child(2){text-align:left}
tr.ours td{font-weight:650;background:var(--ours)}
td.bad{color:var(--bad)}
td.good{color:var(--good)}
td.words{white-space:normal;text-align:left}
th.words{text-align:left}
td small{display:block;max-width:260px;color:var(--quiet);font-weight:400;font-size:12px;white-space:normal;
  line-height:1.35;margin:1px 0 0 16px}
i.dot{display:inline-block;width:9px;height:9px;border-radius:5px;margin-right:7px}
svg text{fill:var(--ink)}
svg{width:100%;min-width:620px;height:auto;font-family:system-ui,Segoe UI,Roboto,sans-serif}
"""


def page(study: Study) -> str:
    """Return the page as one HTML document that references no other file."""
    title = f"Backtest of {study.name}"
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{_e(title)}</title><style>{CSS}</style></head><body><main>",
            f'<h1>{_e(title)}</h1><p class="quiet">{_e(study.about)}</p><p>{_e(headline(study))}</p>',
            "" if too_short(study) else _tiles(study),
            f'<h2>What service costs</h2><div class="card">{pareto(study)}</div>',
            '<p class="quiet">Lower and further right is better; what served the share of the right edge or more is at '
            "that edge. Each point is a setting that the first half of the data left over, measured on the second half."
            "</p>",
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
        values = "".join(f'<td class="{tones.get(i, "")}">{_e(entry)}</td>' for i, entry in enumerate(entries(row)))
        dot = f'<i class="dot" style="background:{colour[row.key]}"></i>'
        mark = ' class="ours"' if row.ours else ""
        title = f"{dot}{_e(row.title)}<small>{_e(row.about)}</small>"
        rows.append(f"<tr{mark}><td>{title}</td>{values}</tr>")
    return _grid(("policy", *COLUMNS), rows)


def _confirmed(study: Study) -> str:
    found = study.confirmed
    if found is None:
        return ""
    colour = colours(study)
    rows: list[str] = []
    for row in found.rows:
        values = "".join(f"<td>{_e(entry)}</td>" for entry in single.entries(row))
        mark = ' class="ours"' if row.ours else ""
        dot = f'<i class="dot" style="background:{colour[row.key]}"></i>'
        rows.append(f"<tr{mark}><td>{dot}{_e(row.title)}</td>{values}</tr>")
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
        values = "".join(f'<td class="{tones.get(i, "")}">{_e(entry)}</td>' for i, entry in enumerate(fault_entries(o)))
        dot = f'<i class="dot" style="background:{colour[o.policy]}"></i>'
        rows.append(
            f'<tr><td>{dot}{_e(titles[o.policy])}</td><td class="words">{_e(TITLES[o.fault])}</td>{values}</tr>'
        )
    return (
        f'<h2>When things go wrong</h2><div class="card">{faults(study)}</div>'
        f'<div class="card below faults">{_grid(("policy", "fault", *FAULT_COLUMNS), rows)}</div>'
    )


def _grid(head: tuple[str, ...], rows: list[str]) -> str:
    return f"<table><tr>{''.join(map(_head, head))}</tr>{''.join(rows)}</table>"


def _head(name: str) -> str:
    return f'<th class="words">{_e(name)}</th>' if name in ("why", "fault") else f"<th>{_e(name)}</th>"


def _decisions(study: Study) -> str:
    if not study.decisions:
        return '<p class="quiet">Our policy changed nothing in the second half.</p>'
    base = study.base.upper()
    head = ("time", "replicas", "bound by", "why", f"{base} had", f"{base} a cold start later")
    rows: list[str] = []
    for d in study.decisions:
        when = datetime.fromtimestamp(d.time_s, UTC)
        moment = f"{when:%a %H:%M:%S}" if dated(study) else f"day {when.timetuple().tm_yday} {when:%H:%M:%S}"
        had, later = (UNKNOWN if x is None else str(x) for x in (d.baseline, d.baseline_later))
        rows.append(
            f"<tr><td>{moment}</td><td>{d.before} → {d.after}</td><td>{_e(d.rule)}</td>"
            f'<td class="words">{_e(d.reason)}</td><td>{had}</td><td>{later}</td></tr>'
        )
    return _grid(head, rows)
