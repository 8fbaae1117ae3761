// Small charts: drawn from numbers, without a library, in the colours of the page.

import { h, svg } from "./dom.js";
import { clock, span } from "./time.js";
import { many } from "./words.js";

const WIDTH = 360;
const HEIGHT = 84;
const HOUR = 60;

// One bar a minute for the last hour, completed below and failed on top.
export function throughput(minutes, thisMinute) {
  const last = Date.parse(thisMinute);
  const byMinute = new Map(minutes.map((minute) => [Date.parse(minute.at), minute]));
  const bars = Array.from({ length: HOUR }, (_, n) => {
    const at = last - (HOUR - 1 - n) * 60000;
    return { at, completed: 0, failed: 0, cancelled: 0, ...byMinute.get(at), n };
  });
  const most = Math.max(4, ...bars.map((bar) => bar.completed + bar.failed));
  const step = WIDTH / HOUR;
  const tall = (n) => (n / most) * (HEIGHT - 6);
  const drawn = bars.filter((bar) => bar.completed + bar.failed).map((bar) => {
    const good = tall(bar.completed);
    const bad = tall(bar.failed);
    const box = (y, height, tone) => (height
      ? svg("rect", { x: bar.n * step + 0.75, y, width: step - 1.5, height, rx: 1.2, class: `bar ${tone}` }) : null);
    return svg("g", {},
      svg("title", {}, `${clock(new Date(bar.at).toISOString()).slice(0, 5)}: ${bar.completed} completed, ${bar.failed} failed`),
      box(HEIGHT - good, good, "good"), box(HEIGHT - good - bad, bad, "bad"));
  });
  const total = bars.reduce((sum, bar) => sum + bar.completed, 0);
  const failed = bars.reduce((sum, bar) => sum + bar.failed, 0);
  const label = `${many(total, "job")} completed and ${failed} failed in the last hour`;
  return {
    total, failed,
    picture: svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 2}`, class: "chart", role: "img", "aria-label": label, preserveAspectRatio: "none" },
      [0.5, 1].map((at) => svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT - tall(most * at), y2: HEIGHT - tall(most * at), class: "grid" })),
      svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT + 1, y2: HEIGHT + 1, class: "axis" }), drawn),
    most,
  };
}

const SCALE = [10, 60, 300, 1800, 7200, 86400];

// How long the oldest due job of each queue has been waiting: one bar each, on one scale.
export function queueAges(ages) {
  const oldest = Math.max(0, ...Object.values(ages));
  const full = SCALE.find((limit) => oldest <= limit) ?? oldest;
  const rows = Object.entries(ages).map(([queue, age]) => h("div", { class: "age" },
    h("span", { class: "age-queue" }, queue),
    svg("svg", { viewBox: "0 0 100 6", class: "age-bar", preserveAspectRatio: "none", role: "img", "aria-label": `${queue}: ${span(age)}` },
      svg("rect", { x: 0, y: 0, width: 100, height: 6, class: "track" }),
      svg("rect", { x: 0, y: 0, width: Math.min(100, (age / full) * 100), height: 6, class: `bar ${age > 300 ? "warn" : "busy"}` })),
    h("span", { class: "age-value" }, age > 0 ? span(age) : "none waits")));
  return h("div", { class: "ages" }, rows, h("p", { class: "scale" }, `full bar: ${span(full)}`));
}
