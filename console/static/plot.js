// A line over time, drawn as SVG.

import { h, replace, svg } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 150;
const LEFT = 64;
const BOTTOM = 20;
const TOP = 8;

/** Shows `points` ([time in ms, value]) with `draw(points)`. `shown` writes a value of the axis. */
export class Plot {
  constructor(title, shown, kind = "", unit = 10) {
    this.shown = shown;
    this.unit = unit;  // 1024 for bytes: the axis shows round numbers
    this.points = [];
    this.now = h("strong", {}, "");
    this.canvas = h("div", { class: "canvas" });
    this.root = h("figure", { class: `plot ${kind}` }, h("figcaption", {}, h("span", {}, title), this.now), this.canvas);
    new ResizeObserver(() => this.render()).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.render());
  }

  draw(points) {
    this.points = points;
    this.render();
  }

  render() {
    const width = this.canvas.clientWidth;
    const points = this.points;
    if (!width) return;
    if (points.length < 2) {
      replace(this.canvas, h("p", { class: "quiet" }, points.length ? "measuring…" : "no data yet"));
      replace(this.now, points.length ? this.shown(points[0][1]) : "");
      return;
    }
    const first = points[0][0];
    const last = points[points.length - 1][0];
    const top = ceiling(Math.max(...points.map((each) => each[1])), this.unit);
    const x = (ms) => LEFT + ((width - LEFT - 6) * (ms - first)) / Math.max(1, last - first);
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const path = points.map(([ms, value], index) => `${index ? "L" : "M"}${x(ms).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const area = `${path}L${x(last).toFixed(1)} ${y(0)}L${x(first).toFixed(1)} ${y(0)}Z`;
    const ticks = [0, top / 2, top];
    const times = [first, ...(width > 420 ? [(first + last) / 2] : []), last];
    this.scale = { x, y, first, last, width };
    replace(this.canvas, svg("svg", { width: String(width), height: String(HEIGHT), role: "img" },
      ticks.map((value) => [
        svg("line", { class: "grid", x1: String(LEFT), x2: String(width - 6), y1: String(y(value)), y2: String(y(value)) }),
        svg("text", { class: "tick", x: String(LEFT - 8), y: String(y(value) + 4), "text-anchor": "end" }, this.shown(value)),
      ]),
      times.map((ms, index) => svg("text", { class: "tick", x: String(x(ms)), y: String(HEIGHT - 4), "text-anchor": index === 0 ? "start" : index === times.length - 1 ? "end" : "middle" }, clock(ms))),
      svg("path", { class: "area", d: area }),
      svg("path", { class: "line", d: path }),
      svg("circle", { class: "end", r: "3.5", cx: String(x(last)), cy: String(y(points[points.length - 1][1])) })));
    replace(this.now, this.shown(points[points.length - 1][1]));
  }

  point(event) {
    if (this.points.length < 2 || !this.scale) return;
    const { x, y } = this.scale;
    const at = event.clientX - this.canvas.getBoundingClientRect().left;
    const nearest = this.points.reduce((best, each) => (Math.abs(x(each[0]) - at) < Math.abs(x(best[0]) - at) ? each : best));
    this.render();
    this.canvas.firstChild.append(
      svg("line", { class: "cross", x1: String(x(nearest[0])), x2: String(x(nearest[0])), y1: String(TOP), y2: String(HEIGHT - BOTTOM) }),
      svg("circle", { class: "end", r: "3.5", cx: String(x(nearest[0])), cy: String(y(nearest[1])) }));
    replace(this.now, h("small", {}, `${clock(nearest[0])} `), this.shown(nearest[1]));
  }
}

/** The next number at or above it that is read easily. */
function ceiling(value, unit) {
  if (value <= 0) return 1;
  const base = unit === 10 ? 1 : unit ** Math.max(0, Math.floor(Math.log(value) / Math.log(unit)));
  const size = base * 10 ** Math.floor(Math.log10(value / base));
  return [1, 2, 4, 5, 10].map((each) => each * size).find((each) => each >= value);
}
