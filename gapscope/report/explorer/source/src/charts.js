// Charts by ECharts, drawn on canvas; every chart has a text beside it that says the same (a label, and a table where it is small).

import { BarChart, CustomChart, HeatmapChart, ScatterChart } from "echarts/charts";
import { BrushComponent, GridComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { h, number, percent, signed } from "./dom.js";

echarts.use([
  BarChart, CustomChart, HeatmapChart, ScatterChart,
  BrushComponent, GridComponent, MarkLineComponent, TooltipComponent, VisualMapContinuousComponent,
  CanvasRenderer,
]);

const drawn = new Set();

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A box for a chart. `option` is asked again when the theme or the width changes.
export function chart(label, height, option, ready = () => {}) {
  const box = h("div", { class: "chart", role: "img", "aria-label": label });
  box.style.height = `${height}px`;
  const entry = { box, option, ready, label, instance: null, width: 0 };
  drawn.add(entry);
  watcher.observe(box);
  return box;
}

const watcher = new ResizeObserver((changes) => {
  for (const { target, contentRect } of changes) {
    const entry = [...drawn].find((known) => known.box === target);
    if (!entry || contentRect.width < 40) continue;
    if (!entry.instance) {
      entry.width = contentRect.width;
      entry.instance = echarts.init(target, null, { renderer: "canvas" });
      entry.instance.setOption(base(entry.option(contentRect.width)));
      entry.ready(entry.instance);
    } else if (Math.abs(entry.width - contentRect.width) > 1) {
      entry.width = contentRect.width;
      entry.instance.resize();
      entry.instance.setOption(base(entry.option(contentRect.width)), { replaceMerge: ["series"] });
    }
  }
});

export function redraw(box) {
  const entry = [...drawn].find((known) => known.box === box);
  if (entry?.instance) entry.instance.setOption(base(entry.option(entry.width)), { replaceMerge: ["series"] });
}

export function redrawAll() {
  for (const { box } of drawn) redraw(box);
}

export function forget() {
  for (const entry of drawn) {
    if (document.body.contains(entry.box)) continue;
    entry.instance?.dispose();
    watcher.unobserve(entry.box);
    drawn.delete(entry);
  }
}

function base(option) {
  const text = { color: colour("ink"), fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 12 };
  return {
    animation: false,
    textStyle: text,
    ...option,
    tooltip: option.tooltip && {
      renderMode: "richText", confine: true, backgroundColor: colour("panel"), borderColor: colour("line"), textStyle: text, ...option.tooltip,
    },
  };
}

export function axis(more) {
  return {
    axisLine: { lineStyle: { color: colour("line") } },
    axisLabel: { color: colour("soft"), hideOverlap: true, fontSize: 12 },
    splitLine: { lineStyle: { color: colour("faint") } },
    nameTextStyle: { color: colour("soft"), fontSize: 12 },
    nameLocation: "middle",
    ...more,
  };
}

// Bars over even bins: all in a faint tone, the chosen ones in front.
export function histogram(label, { low, high, bins, all, chosen, name, format, brushed, range }) {
  const rects = (counts, tone) => ({
    type: "custom", z: 2, zlevel: 0,
    encode: { x: [0, 1], y: 2 },
    itemStyle: { color: tone },
    data: Array.from(counts, (n, k) => [low + (k * (high - low)) / bins, low + ((k + 1) * (high - low)) / bins, n]),
    renderItem: (_params, api) => {
      const [x0, y0] = api.coord([api.value(0), api.value(2)]);
      const [x1, y1] = api.coord([api.value(1), 0]);
      return { type: "rect", shape: { x: x0, y: y0, width: Math.max(x1 - x0 - 1, 1), height: y1 - y0 }, style: { fill: api.visual("color") } };
    },
  });
  const option = () => ({
    grid: { left: 44, right: 12, top: 12, bottom: 40 },
    xAxis: axis({ type: "value", min: low, max: high, name, nameGap: 24, axisLabel: { color: colour("soft"), fontSize: 12, formatter: format, hideOverlap: true, showMinLabel: false, showMaxLabel: false } }),
    yAxis: axis({ type: "value", minInterval: 1 }),
    brush: {
      xAxisIndex: 0, brushType: "lineX", throttleType: "debounce", throttleDelay: 60, outOfBrush: { colorAlpha: 1 },
      brushStyle: { color: `${colour("accent")}22`, borderColor: colour("accent"), borderWidth: 1 }, transformable: true, z: 100,
    },
    series: [rects(all, colour("bar-back")), rects(chosen(), colour("bar"))],
  });
  return chart(label, 190, option, (instance) => {
    instance.dispatchAction({ type: "takeGlobalCursor", key: "brush", brushOption: { brushType: "lineX", brushMode: "single", z: 100 } });
    if (range) instance.dispatchAction({ type: "brush", areas: [{ brushType: "lineX", xAxisIndex: 0, coordRange: range, z: 100 }] });
    instance.on("brushEnd", ({ areas }) => brushed(areas.length ? areas[0].coordRange : null));
  });
}

const LETTER = 7; // pixels, about, of a 12 px letter

// A name that is too long for one line, on two: broken after a space or an underscore, the only places where a slug can be.
function folded(name, width) {
  const fits = Math.floor(width / LETTER);
  if (name.length <= fits) return name;
  const breaks = [...name].flatMap((letter, k) => (/[ _]/.test(letter) && k < fits ? [k + 1] : []));
  const at = breaks.at(-1);
  return at ? `${name.slice(0, at).trimEnd()}\n${name.slice(at)}` : name;
}

// A dot and its interval a row, the first row on top; `zero` is the value of the reference line.
export function intervals(label, rows, { zero = null, name = "", format = signed, row = 28 } = {}) {
  if (!rows.some((entry) => Number.isFinite(entry.value))) return h("p", {}, "Nothing here has a number.");
  const option = (width) => {
    const left = Math.min(width * (width < 500 ? 0.46 : 0.38), 22 + LETTER * Math.max(...rows.map((entry) => entry.name.length)));
    const known = rows.flatMap((entry) => [entry.low, entry.high, entry.value, entry.mark]).filter(Number.isFinite);
    const ends = zero === null ? known : [...known, zero];
    const pad = (Math.max(...ends) - Math.min(...ends) || 1) * 0.04;
    return {
      grid: { left, right: 16, top: 6, bottom: 24 },
      tooltip: {
        formatter: ({ data }) => {
          const entry = rows[data[1]];
          const span = Number.isFinite(entry.low) ? ` (${format(entry.low)} to ${format(entry.high)})` : "";
          return `${entry.name}\n${format(entry.value)}${span}${entry.note ? `\n${entry.note}` : ""}`;
        },
      },
      xAxis: axis({ type: "value", min: Math.min(...ends) - pad, max: Math.max(...ends) + pad, axisLabel: { color: colour("soft"), fontSize: 12, formatter: (v) => format(v), hideOverlap: true, showMinLabel: false, showMaxLabel: false } }),
      yAxis: axis({
        type: "category", inverse: true, data: rows.map((entry) => folded(entry.name, left - 12)), axisTick: { show: false },
        axisLabel: { color: colour("ink"), fontSize: 12, lineHeight: 13, width: left - 12, overflow: "truncate", interval: 0 }, splitLine: { show: false },
      }),
      series: [
        {
          type: "custom", z: 2, zlevel: 0,
          data: rows.map((entry, k) => [entry.value, k, entry.low, entry.high, entry.mark]),
          renderItem: (_params, api) => {
            const entry = rows[api.value(1)];
            const at = (value) => api.coord([value, api.value(1)]);
            const tone = colour(entry.tone ?? "bar");
            const children = [];
            if (Number.isFinite(entry.low)) {
              const [x0, y] = at(entry.low);
              const [x1] = at(entry.high);
              children.push({ type: "line", shape: { x1: x0, y1: y, x2: x1, y2: y }, style: { stroke: tone, lineWidth: 2 } });
            }
            if (Number.isFinite(entry.mark)) {
              const [x, y] = at(entry.mark);
              children.push({ type: "line", shape: { x1: x, y1: y - 8, x2: x, y2: y + 8 }, style: { stroke: colour("ink"), lineWidth: 2 } });
            }
            if (Number.isFinite(entry.value)) {
              const [x, y] = at(entry.value);
              const style = entry.hollow ? { fill: colour("page"), stroke: tone, lineWidth: 2 } : { fill: tone };
              children.push({ type: "circle", shape: { cx: x, cy: y, r: 5 }, style });
            }
            return { type: "group", children };
          },
          markLine: zero === null ? undefined : { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: colour("soft"), type: "dashed" }, data: [{ xAxis: zero }] },
        },
      ],
    };
  };
  return h("figure", {}, chart(label, rows.length * row + 34, option), h("figcaption", {}, name));
}

export function heatmap(label, names, value, { name, low, high }) {
  const cells = names.flatMap((_a, y) => names.map((_b, x) => [x, y, value(y, x)])).filter(([x, y]) => x !== y);
  const longest = LETTER * Math.max(...names.map((name) => name.length));
  // Names stand at 50 degrees below the columns: the height that they need is four fifths of their length.
  const below = Math.min(170, longest) * 0.8 + 24;
  return chart(label, below + names.length * 30, (width) => {
    const left = Math.min(longest + 16, width * 0.38);
    return {
      grid: { left, right: 14, top: 8, bottom: below },
      tooltip: { formatter: ({ data }) => `${names[data[1]]}, ${names[data[0]]}\n${name} ${percent(data[2])}` },
      xAxis: axis({ type: "category", data: names, axisLabel: { color: colour("soft"), fontSize: 12, rotate: 50, interval: 0, width: 170, overflow: "truncate" }, splitLine: { show: false } }),
      yAxis: axis({ type: "category", data: names.map((name) => folded(name, left - 10)), inverse: true, axisLabel: { color: colour("soft"), fontSize: 12, lineHeight: 13, interval: 0, width: left - 10, overflow: "truncate" }, splitLine: { show: false } }),
      visualMap: { show: false, min: low, max: high, inRange: { color: [colour("heat-0"), colour("heat-1"), colour("heat-2")] } },
      series: [{
        type: "heatmap", data: cells,
        label: { show: width > 640, formatter: ({ data }) => number(data[2] * 100, 0), color: colour("ink"), textBorderColor: colour("page"), textBorderWidth: 2 },
      }],
    };
  });
}

export function scatter(label, series, { xName, yName, open, describe }) {
  const many = series().reduce((sum, entry) => sum + entry.points.length, 0) > 20000;
  const minus = (value) => String(value).replace("-", "−");
  return chart(label, 190, () => ({
    grid: { left: 52, right: 12, top: 12, bottom: 40 },
    tooltip: { formatter: ({ data }) => describe(data[2]) },
    xAxis: axis({ type: "value", scale: true, name: xName, nameGap: 24, axisLabel: { color: colour("soft"), fontSize: 12, hideOverlap: true, formatter: minus } }),
    yAxis: axis({ type: "value", scale: true, name: yName, nameGap: 36, axisLabel: { color: colour("soft"), fontSize: 12, hideOverlap: true, formatter: minus } }),
    series: series().map(({ points, tone, symbol }) => ({
      type: "scatter", data: points, symbol, symbolSize: many ? 3 : 5, large: many, largeThreshold: 5000, itemStyle: { color: colour(tone), opacity: 0.65 },
    })),
  }), (instance) => instance.on("click", ({ data }) => open(data[2])));
}
