// What the charts need to run in the browser: the layout of the heat map, custom shapes, tooltips, and the reader's
// choices. Everything that came in a record is escaped before it becomes HTML.
window.flyball = (() => {
  const look = window.flyballLook;
  const MARK = { 3: "#e5484d", 2: look.name === "dark" ? "#f2b84b" : "#d98a00", 1: look.name === "dark" ? "#d59bff" : "#8e4ec6" };
  const HEALTH = { 3: "failing", 2: "straggling", 1: "anomalous" };
  const LABEL = 20;
  const maxHeight = (width) => (width < 560 ? 560 : 344);
  const DEEP = 8; // GPUs in one column of a node
  const DEPTHS = [4, 6, 8, 10, 12, 16, 20, 24]; // squares in one column where a square is no GPU

  // --- the reader's choices, kept in cookies so that the server knows them ----------------------------
  const YEAR_S = 31536000;
  const keep = (name, value) => {
    document.cookie = `${name}=${encodeURIComponent(value)}; path=/; max-age=${YEAR_S}; samesite=lax`;
    return document.cookie.includes(`${name}=`);
  };
  const choose = (name, value) => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const kept = name === "theme" ? keep("flyball_theme", value) : keep("flyball_zone", value === "local" ? zone : "UTC");
    if (kept) location.reload();
  };
  const escape = (text) =>
    String(text).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);

  const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const RAMP = look.ramp.map(([at, hex]) => [at, rgb(hex)]);
  const colour = (percent) => {
    const at = Math.min(1, percent / 100);
    let i = 1;
    while (i < RAMP.length - 1 && at > RAMP[i][0]) i++;
    const [low, from] = RAMP[i - 1];
    const [high, to] = RAMP[i];
    const part = (at - low) / (high - low);
    return `rgb(${from.map((v, k) => Math.round(v + part * (to[k] - v))).join(",")})`;
  };
  const PALETTE = Array.from({ length: 101 }, (_, percent) => colour(percent));

  // --- heat map -------------------------------------------------------------------------------
  const fleet = { level: "gpu", layout: [], values: { use: [], power: [], heat: [], memory: [] }, marks: [], silent: new Set(), boxes: [], names: [], work: [], links: [], size: 10 };

  const place = (groups, width, size, deep) => {
    const gap = size >= 9 ? 2 : size >= 5 ? 1 : 0;
    const step = size + gap;
    const between = fleet.level === "gpu" ? Math.max(1, Math.round(size * 0.3)) : 0;
    const boxes = [];
    const labels = [];
    let x = 0;
    let y = 0;
    let rowHeight = 0;
    for (const group of groups) {
      const total = group.names.length;
      const columns = fleet.level === "gpu" ? group.columns : Array.from({ length: Math.ceil(total / deep) }, (_, n) => Math.min(deep, total - n * deep));
      const strips = columns.map((count) => Math.ceil(count / deep) * step + between);
      const depth = Math.max(...columns.map((count) => Math.min(deep, count))) * step + between;
      const text = group.text;
      const natural = Math.max(strips.reduce((a, b) => a + b, 0), text.length * 6.4 + 10);
      if (x > 0 && x + natural > width) {
        x = 0;
        y += rowHeight + 4;
        rowHeight = 0;
      }
      labels.push({ x, y, text });
      let left = x;
      let top = y + LABEL;
      columns.forEach((count, n) => {
        if (left > x && left + strips[n] - between > width) {
          left = x;
          top += depth;
        }
        for (let d = 0; d < count; d++) boxes.push([left + Math.floor(d / deep) * step, top + (d % deep) * step]);
        left += strips[n];
      });
      rowHeight = Math.max(rowHeight, top + depth - y);
      x += natural + 18;
    }
    return { boxes, labels, height: y + rowHeight, size };
  };

  const arrange = (chart) => {
    const width = chart.getDom().clientWidth;
    let found = place(fleet.layout, width, 2, DEEP);
    let best = 0;
    for (let size = 24; size > 2; size--) { // the arrangement that leaves the least ground bare
      for (const deep of fleet.level === "gpu" ? [DEEP] : DEPTHS) {
        const tried = place(fleet.layout, width, size, deep);
        const filled = (tried.boxes.length * size * size) / (width * tried.height);
        if (tried.height <= maxHeight(width) && filled > best) [found, best] = [tried, filled];
      }
    }
    fleet.boxes = found.boxes;
    fleet.size = found.size;
    fleet.width = width;
    chart.getDom().style.height = `${Math.max(96, Math.ceil(found.height) + 4)}px`;
    chart.resize();
    const elements = found.labels.map((label) => ({
      type: "text",
      left: label.x,
      top: label.y + 2,
      silent: true,
      style: { text: label.text, fill: look.muted, font: "500 11px Roboto, system-ui, sans-serif" },
    }));
    chart.setOption({ graphic: { elements } }, { replaceMerge: ["graphic"] });
  };

  const item = (value, square) => ({ value, link: fleet.links[square] });
  const draw = (chart) => {
    const squares = fleet.values.use.map((use, square) => item(use, square));
    chart.setOption({ series: [{ data: squares }, { data: fleet.marks.map((mark) => item([mark[0], mark[1]], mark[0])) }] });
  };

  const watched = new WeakSet();
  const updateFleet = (id, patch) => {
    if (patch.layout) {
      fleet.layout = patch.layout;
      fleet.level = patch.level;
      for (const name of ["names", "work", "links"]) fleet[name] = patch.layout.flatMap((group) => group[name]);
      fleet.width = 0;
    }
    fleet.values = patch.values;
    fleet.marks = patch.marks;
    fleet.silent = new Set(patch.silent);
    const chart = getElement(id)?.chart;
    if (!chart) {
      setTimeout(() => updateFleet(id, { ...patch, layout: null }), 50);
      return;
    }
    if (!watched.has(chart)) {
      watched.add(chart);
      new ResizeObserver(() => {
        if (chart.getDom().clientWidth !== fleet.width) {
          arrange(chart);
          draw(chart);
        }
      }).observe(chart.getDom().parentElement);
    }
    if (chart.getDom().clientWidth !== fleet.width) arrange(chart);
    draw(chart);
  };

  const renderDevice = (params) => {
    const box = fleet.boxes[params.dataIndex];
    if (!box) return null;
    const use = fleet.values.use[params.dataIndex];
    return {
      type: "rect",
      shape: { x: box[0], y: box[1], width: fleet.size, height: fleet.size, r: fleet.size >= 9 ? 2 : 0 },
      style: {
        fill: use < 0 ? look.unknown : PALETTE[Math.min(100, use)],
        opacity: fleet.silent.has(params.dataIndex) ? 0.35 : 1,
        stroke: use < 0 ? look.line : undefined,
        lineWidth: use < 0 ? 1 : 0,
      },
    };
  };

  const renderMark = (params, api) => {
    const box = fleet.boxes[api.value(0)];
    if (!box) return null;
    const level = api.value(1);
    const s = fleet.size;
    const [x, y] = box;
    const [cx, cy, r] = [x + s / 2, y + s / 2, Math.max(2, s * 0.24)];
    const stroke = MARK[level];
    const dark = "#0b0f17";
    const glyph = {
      3: { type: "polyline", shape: { points: [[cx - r, cy - r], [cx + r, cy + r], [cx, cy], [cx - r, cy + r], [cx + r, cy - r]] }, style: { stroke: "#fff", lineWidth: 1.6, fill: null } },
      2: { type: "polygon", shape: { points: [[cx, cy - r], [cx + r, cy + r * 0.8], [cx - r, cy + r * 0.8]] }, style: { fill: dark } },
      1: { type: "circle", shape: { cx, cy, r: r * 0.8 }, style: { fill: dark } },
    }[level];
    const ring = { type: "rect", shape: { x: x - 1.5, y: y - 1.5, width: s + 3, height: s + 3, r: 3 }, style: { fill: level === 3 ? "#c92a3a" : stroke, stroke, lineWidth: 1 } };
    if (s >= 7) return { type: "group", children: [ring, glyph] };
    return { type: "rect", shape: { x: cx - 4, y: cy - 4, width: 8, height: 8, r: 2 }, style: { fill: stroke, stroke: dark, lineWidth: 1.5 } };
  };

  const deviceTip = (params) => {
    const square = params.seriesIndex === 1 ? params.value[0] : params.dataIndex;
    if (fleet.names[square] === undefined) return "";
    const show = (list, unit) => (list[square] === undefined || list[square] < 0 ? "unknown" : `${list[square].toLocaleString("en")} ${unit}`);
    const many = fleet.level !== "gpu";
    const rows = [
      [fleet.level === "pool" ? "size" : "workload", escape(fleet.work[square] || "free")],
      [many ? "mean utilisation" : "utilisation", show(fleet.values.use, "%")],
      ["power", show(fleet.values.power, "W")],
      [many ? "hottest GPU" : "temperature", show(fleet.values.heat, "°C")],
      [many ? "mean memory" : "memory", show(fleet.values.memory, "%")],
    ];
    const mark = fleet.marks.find((m) => m[0] === square);
    if (mark) rows.push([HEALTH[mark[1]], `${escape(mark[2])}${mark[3] > 1 ? `, ${mark[3]} GPUs in all` : ""}`]);
    if (fleet.silent.has(square)) rows.push(["silent", "no frame for 30 s"]);
    return tip(escape(fleet.names[square]), rows);
  };

  // --- tooltips and shapes of the time charts ---------------------------------------------------
  const tip = (title, rows) =>
    `<div class="fb-tip"><b>${title}</b><table>${rows.map(([k, v]) => `<tr><td>${k}</td><td>${v}</td></tr>`).join("")}</table></div>`;
  const two = (n) => String(n).padStart(2, "0");
  const when = (ms, seconds) => {
    const at = look.utc ? new Date(ms + new Date(ms).getTimezoneOffset() * 60000) : new Date(ms);
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
    return `${seconds ? "" : `${two(at.getMonth() + 1)}-${two(at.getDate())} `}${clock} ${look.utc ? "UTC" : "local time"}`;
  };
  const num = (v) => (Math.abs(v) >= 100 ? Math.round(v).toLocaleString("en") : Number(v.toPrecision(3)).toString());
  const axis = (v) => (Math.abs(v) >= 10000 ? `${Number((v / 1000).toPrecision(3)).toLocaleString("en")} k` : Number(v.toPrecision(4)).toLocaleString("en"));

  const demandTip = (params) => {
    const by = Object.fromEntries(params.filter((p) => p.value).map((p) => [p.seriesName, p.value[1]]));
    const rows = [];
    for (const name of ["observed", "median"]) if (name in by) rows.push([name, num(by[name])]);
    const inner = by["25–75 %"];
    const outer = by["5–95 %"];
    if (inner !== undefined) rows.push(["25–75 %", `${num(by["inner low"])} – ${num(by["inner low"] + inner)}`]);
    if (outer !== undefined) rows.push(["5–95 %", `${num(by["outer low"])} – ${num(by["outer low"] + outer)}`]);
    if ("capacity ready" in by) rows.push(["capacity ready", num(by["capacity ready"])]);
    if ("ready" in by) rows.push(["replicas ready", num(by.ready)]);
    if ("running" in by) rows.push(["replicas running", num(by.running)]);
    return tip(when(params[0].axisValue, true), rows);
  };

  const flagTip = (params) => {
    const told = params.data?.tip ?? [];
    return tip(escape(told[0] ?? ""), [["decided", when(params.value[0], true)], ["outcome", escape(told[1] ?? "")]]);
  };

  const lineTip = (params) => {
    const known = params.filter((p) => p.value);
    return known.length ? tip(when(known[0].axisValue, true), known.map((p) => [escape(p.seriesName), num(p.value[1])])) : "";
  };

  const carbonTip = (params) => {
    const zones = params.filter((p) => p.seriesType === "line" && p.seriesName && p.value);
    return zones.length ? tip(when(zones[0].axisValue, false), zones.map((p) => [escape(p.seriesName), `${num(p.value[1])} gCO₂e/kWh`])) : "";
  };

  const renderSlot = (params, api) => {
    const row = api.value(0);
    const [x0, y] = api.coord([api.value(1), row]);
    const [x1] = api.coord([api.value(2), row]);
    const area = params.coordSys;
    const left = Math.max(x0, area.x);
    const right = Math.min(x1, area.x + area.width);
    if (right <= left) return null;
    return {
      type: "rect",
      shape: { x: left, y: y - 5, width: Math.max(2, right - left - 1), height: 10, r: 2 },
      style: { fill: api.visual("color"), opacity: 0.9 },
    };
  };

  return { choose, updateFleet, renderDevice, renderMark, deviceTip, demandTip, flagTip, lineTip, carbonTip, renderSlot, axis };
})();
