// What the charts need to run in the browser: the layout of the heat map, custom shapes and tooltips.
// Everything that came in a record is escaped before it becomes HTML.
window.flyball = (() => {
  const RAMP = [
    [0, [25, 33, 50]],
    [0.2, [26, 62, 97]],
    [0.45, [23, 112, 130]],
    [0.7, [46, 156, 122]],
    [0.88, [108, 192, 112]],
    [1, [205, 228, 116]],
  ];
  const UNKNOWN = "#151b27";
  const MARK = { 3: "#ff6b6b", 2: "#f2b84b", 1: "#d59bff" };
  const HEALTH = { 3: "failing", 2: "straggling", 1: "anomalous" };
  const LABEL = 20;
  const maxHeight = (width) => (width < 560 ? 560 : 344);
  const DEEP = 8; // devices in one column of a node

  const escape = (text) =>
    String(text).replace(/[&<>"']/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" })[c]);

  const colour = (percent) => {
    if (percent < 0) return UNKNOWN;
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
  const fleet = { layout: [], values: { use: [], power: [], heat: [], memory: [] }, marks: [], silent: new Set(), boxes: [], devices: [], size: 10 };

  const place = (groups, width, size) => {
    const gap = size >= 9 ? 2 : size >= 5 ? 1 : 0;
    const step = size + gap;
    const between = Math.max(1, Math.round(size * 0.3));
    const boxes = [];
    const labels = [];
    let x = 0;
    let y = 0;
    let rowHeight = 0;
    for (const group of groups) {
      const strips = group.nodes.map((node) => Math.ceil(node.devices.length / DEEP) * step + between);
      const depth = Math.max(...group.nodes.map((node) => Math.min(DEEP, node.devices.length))) * step + between;
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
      group.nodes.forEach((node, n) => {
        if (left > x && left + strips[n] - between > width) {
          left = x;
          top += depth;
        }
        node.devices.forEach((_, d) => {
          boxes.push([left + Math.floor(d / DEEP) * step, top + (d % DEEP) * step]);
        });
        left += strips[n];
      });
      rowHeight = Math.max(rowHeight, top + depth - y);
      x += natural + 18;
    }
    return { boxes, labels, height: y + rowHeight, size };
  };

  const arrange = (chart) => {
    const width = chart.getDom().clientWidth;
    let found = place(fleet.layout, width, 2);
    let best = 0;
    for (let size = 24; size > 2; size--) { // the arrangement that leaves the least ground bare
      const tried = place(fleet.layout, width, size);
      const filled = (tried.boxes.length * size * size) / (width * tried.height);
      if (tried.height <= maxHeight(width) && filled > best) [found, best] = [tried, filled];
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
      style: { text: label.text, fill: "#98a2b8", font: "500 11px Roboto, system-ui, sans-serif" },
    }));
    chart.setOption({ graphic: { elements } }, { replaceMerge: ["graphic"] });
  };

  const draw = (chart) => {
    chart.setOption({ series: [{ data: fleet.values.use }, { data: fleet.marks.map((mark) => [mark[0], mark[1]]) }] });
  };

  const watched = new WeakSet();
  const updateFleet = (id, patch) => {
    if (patch.layout) {
      fleet.layout = patch.layout;
      fleet.devices = patch.layout.flatMap((group) =>
        group.nodes.flatMap((node) => node.devices.map((index, d) => ({ node, index, workload: node.workloads[d] }))),
      );
      let order = 0;
      for (const group of patch.layout) for (const node of group.nodes) node.place = order++;
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
    const device = fleet.devices[params.dataIndex];
    if (!box || !device) return null;
    const use = fleet.values.use[params.dataIndex];
    const silent = fleet.silent.has(device.node.place);
    return {
      type: "rect",
      shape: { x: box[0], y: box[1], width: fleet.size, height: fleet.size, r: fleet.size >= 9 ? 2 : 0 },
      style: {
        fill: use < 0 ? UNKNOWN : PALETTE[Math.min(100, use)],
        opacity: silent ? 0.35 : 1,
        stroke: use < 0 ? "#2a3345" : undefined,
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
    const index = params.seriesIndex === 1 ? params.value[0] : params.dataIndex;
    const device = fleet.devices[index];
    if (!device) return "";
    const show = (list, unit) => (list[index] === undefined || list[index] < 0 ? "unknown" : `${list[index]} ${unit}`);
    const rows = [
      ["workload", escape(device.workload || "free")],
      ["utilisation", show(fleet.values.use, "%")],
      ["power", show(fleet.values.power, "W")],
      ["temperature", show(fleet.values.heat, "°C")],
      ["memory", show(fleet.values.memory, "%")],
    ];
    const mark = fleet.marks.find((m) => m[0] === index);
    if (mark) rows.push([HEALTH[mark[1]], escape(mark[2])]);
    if (fleet.silent.has(device.node.place)) rows.push(["silent", "no frame for 30 s"]);
    return tip(`${escape(device.node.name)} · GPU ${device.index}`, rows);
  };

  // --- tooltips and shapes of the time charts ---------------------------------------------------
  const tip = (title, rows) =>
    `<div class="fb-tip"><b>${title}</b><table>${rows.map(([k, v]) => `<tr><td>${k}</td><td>${v}</td></tr>`).join("")}</table></div>`;
  const utc = (ms, seconds) => new Date(ms).toISOString().slice(seconds ? 11 : 5, seconds ? 19 : 16).replace("T", " ") + " UTC";
  const num = (v) => (Math.abs(v) >= 100 ? v.toFixed(0) : Number(v.toPrecision(3)).toString());

  const demandTip = (params) => {
    const by = Object.fromEntries(params.map((p) => [p.seriesName, p.value[1]]));
    const rows = [];
    if ("observed" in by) rows.push(["observed", num(by.observed)]);
    if ("median" in by) rows.push(["median", num(by.median)]);
    const inner = by["25–75 %"];
    const outer = by["5–95 %"];
    if (inner !== undefined) rows.push(["25–75 %", `${num(by["inner low"])} – ${num(by["inner low"] + inner)}`]);
    if (outer !== undefined) rows.push(["5–95 %", `${num(by["outer low"])} – ${num(by["outer low"] + outer)}`]);
    if ("capacity ready" in by) rows.push(["capacity ready", num(by["capacity ready"])]);
    return tip(utc(params[0].axisValue, true), rows);
  };

  const carbonTip = (params) => {
    const zones = params.filter((p) => p.seriesType === "line" && p.seriesName && p.value);
    return zones.length ? tip(utc(zones[0].axisValue, false), zones.map((p) => [escape(p.seriesName), `${num(p.value[1])} gCO₂e/kWh`])) : "";
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

  return { updateFleet, renderDevice, renderMark, deviceTip, demandTip, carbonTip, renderSlot };
})();
