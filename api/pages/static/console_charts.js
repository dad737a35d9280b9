// Line charts over the last minutes, drawn by uPlot. Lines differ in colour and in dashes; the legend has both.
// Each chart has a text instead for a screen reader, and a line of text with the numbers under the pointer.

import { byId, duration, printable } from "./console_cells.js";

export const MAX_LINES = 6;

const HEIGHT = 170;
const DASHES = [[], [9, 4], [2, 3], [12, 3, 2, 3], [5, 5], [2, 6]];
const MINUTE_S = 60;
const MIN_TICK_PX = 34;

const colour = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
const lineColour = (index) => colour(`--line-${index + 1}`);

function axes(tick, kept_s) {
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const common = { stroke: colour("--quiet"), font, ticks: { show: false }, grid: { stroke: colour("--line"), width: 1 } };
  const minutes = Array.from({ length: kept_s / MINUTE_S + 1 }, (_, index) => index * MINUTE_S - kept_s);
  const ago = (at, index) => (at ? `${-at / MINUTE_S}${index ? "" : " min"}` : "now");
  return [
    { ...common, size: 26, splits: () => minutes, values: (_, splits) => splits.map(ago) },
    { ...common, size: 62, space: MIN_TICK_PX, values: (_, splits) => splits.map(tick) },
  ];
}

const linesOf = (names) => names.map((name, index) => ({
  label: printable(name), stroke: lineColour(index), dash: DASHES[index], width: 2, spanGaps: false,
}));

// Draws in `figure`. `unit` makes a text of a number, `tick` one for the scale, whose upper end is at least `top`.
export class Chart {
  constructor(figure, unit, tick, top) {
    Object.assign(this, { unit, tick, top, names: "", plot: null, data: [[]], lines: [] });
    this.place = figure.querySelector(".plot");
    this.readout = figure.querySelector(".readout");
    this.title = figure.querySelector("figcaption").textContent;
    new ResizeObserver(() => this.plot && this.plot.setSize(this.size())).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.plot && this.draw());
  }

  size() {
    return { width: Math.max(this.place.clientWidth, 160), height: HEIGHT };
  }

  // `times` are s, ascending up to 0, which is now; each line has a `name`, and a number or null for each time.
  show(times, lines, kept_s) {
    const data = [times, ...lines.map((each) => each.values)];
    const names = JSON.stringify(lines.map((each) => each.name));
    const isSame = this.plot && names === this.names;
    Object.assign(this, { data, lines, names, kept_s });
    if (isSame) this.plot.setData(data);
    else this.draw();
    this.read(this.plot.cursor.idx);
    const texts = lines.map((each) => `${printable(each.name)} ${this.last(each)}`);
    this.place.setAttribute("aria-label", `${this.title}: ${texts.join(", ") || "nothing"}`);
  }

  draw() {
    if (this.plot) this.plot.destroy();
    this.plot = new globalThis.uPlot({
      ...this.size(),
      series: [{}, ...linesOf(this.lines.map((each) => each.name))],
      axes: axes(this.tick, this.kept_s),
      scales: {
        x: { time: false, range: () => [-this.kept_s, 0] },
        y: { range: (_, low, high) => [0, Math.max(high * 1.15, this.top)] },
      },
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false }, sync: { key: "history" }, points: { size: 7 } },
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)] },
    }, this.data, this.place);
  }

  last(line) {
    const value = line.values[line.values.length - 1];
    return value === null || value === undefined ? "unknown" : this.unit(value);
  }

  // Shows the numbers at a time, or the last ones.
  read(index) {
    const times = this.data[0];
    const at = index === null || index === undefined || index >= times.length ? times.length - 1 : index;
    const texts = this.lines.map((each) => {
      const value = each.values[at];
      return `\u2068${printable(each.name)}\u2069 ${value === null || value === undefined ? "-" : this.unit(value)}`;
    });
    const when = at === times.length - 1 ? "now" : `${duration(-times[at])} ago`;
    const text = texts.length ? `${when}: ${texts.join(", ")}` : "";
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }
}

export function fillLegend(list, names) {
  const shown = names.map((each) => printable(each));
  if (JSON.stringify(shown) === list.dataset.shown) return;
  list.dataset.shown = JSON.stringify(shown);
  list.replaceChildren(...shown.map((each, index) => {
    const item = byId("legend-item").content.cloneNode(true);
    const line = item.querySelector("line");
    line.setAttribute("class", `line-${index + 1}`);
    line.setAttribute("stroke-dasharray", DASHES[index].join(" ") || "none");
    item.querySelector("bdi").textContent = each;
    return item;
  }));
}
