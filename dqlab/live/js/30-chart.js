// A line over time, drawn at the real width; the text in it never scales.

const HEIGHT = 150;
const EDGE = { left: 40, right: 10, top: 16, bottom: 20 };

function round(value) {
  return Math.round(value * 10) / 10;
}

// The least of 1, 2 or 5 times a power of ten that is not below the largest value.
function ceiling(values) {
  const most = Math.max(1, ...values.filter((value) => value !== null));
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= most);
}

function short(value) {
  for (const [unit, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= unit) return `${round(value / unit)}${name}`;
  return String(round(value));
}

// Pieces of a line without gaps: what is not known is left out, not bridged.
function pieces(values) {
  const found = [];
  values.forEach((value, at) => {
    if (value === null) return;
    if (at && values[at - 1] !== null && found.length) found[found.length - 1].push(at);
    else found.push([at]);
  });
  return found;
}

function label(x, y, content, style = {}) {
  const element = draw("text", { x: round(x), y: round(y), ...style });
  element.textContent = content;
  return element;
}

function marksOf(chart, x, width, bottom) {
  const shapes = [];
  let free = 0;
  chart.marks.forEach((each, place) => {
    const at = x(each.at);
    const next = place + 1 < chart.marks.length ? x(chart.marks[place + 1].at) : width - EDGE.right;
    shapes.push(draw("path", { d: `M${round(at)} 14V${bottom}`, class: "dq-mark" }));
    const cell = each.cell.length * 6.8;
    const words = each.text.length * 5.6 + 6;
    if (at < free || at + 3 + cell > width) return;
    const name = label(at + 3, 11, "");
    const first = draw("tspan", { class: "dq-code" });
    first.textContent = each.cell;
    name.append(first);
    const full = width >= 420 && at + 3 + cell + words < Math.max(next, at + 1);
    if (full) name.append(` ${each.text}`);
    const whole = draw("title");
    whole.textContent = `${each.cell} ${each.text}`;
    name.append(whole);
    free = at + 3 + cell + (full ? words : 4);
    shapes.push(name);
  });
  return shapes;
}

function axes(chart, x, y, top, width, bottom) {
  const shapes = [];
  for (const value of [0, top / 2, top]) {
    shapes.push(draw("path", { d: `M${EDGE.left} ${round(y(value))}H${width - EDGE.right}`, class: "dq-grid" }));
    shapes.push(label(EDGE.left - 6, y(value) + 4, short(value), { "text-anchor": "end" }));
  }
  let free = -Infinity;
  for (const [at, word] of chart.ticks) {
    const place = x(at);
    if (place < free || place > width - 14) continue;
    shapes.push(label(place, bottom + 15, word, { "text-anchor": place < EDGE.left + 14 ? "start" : "middle" }));
    shapes.push(draw("path", { d: `M${round(place)} ${bottom}v4`, class: "dq-grid" }));
    free = place + 52;
  }
  return shapes;
}

function fanOf(chart, x, y, last, bottom, width) {
  const [early, probably, late] = chart.fan.map(x);
  const from = `${round(x(chart.now))},${round(y(last))}`;
  const end = Math.min(Math.max(late + 2, EDGE.left + 70), width - EDGE.right);
  return [
    draw("path", { d: `M${from}L${round(early)},${bottom}L${round(late)},${bottom}Z`, class: "dq-fan" }),
    draw("path", { d: `M${from}L${round(probably)},${bottom}`, class: "dq-likely" }),
    draw("rect", { x: round(early), y: bottom - 1.5, width: Math.max(2, round(late - early)), height: 3, class: "dq-when" }),
    label(end, bottom - 36, chart.due, { "text-anchor": "end", class: "dq-due" }),
    label(end, bottom - 23, chart.band, { "text-anchor": "end" }),
  ];
}

function chartOf(chart, width) {
  const bottom = HEIGHT - EDGE.bottom;
  const top = ceiling(chart.values);
  const x = (at) => EDGE.left + (at / chart.end) * (width - EDGE.left - EDGE.right);
  const y = (value) => bottom - (value / top) * (bottom - EDGE.top);
  const svg = draw("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": chart.label });
  svg.append(...axes(chart, x, y, top, width, bottom));
  for (const piece of pieces(chart.values)) {
    const points = piece.map((at) => `${round(x(at * chart.step))},${round(y(chart.values[at]))}`);
    const ends = [piece[piece.length - 1], piece[0]].map((at) => `L${round(x(at * chart.step))},${bottom}`);
    svg.append(draw("path", { d: `M${points.join(" ")}${ends.join("")}Z`, class: "dq-area" }));
    svg.append(draw("path", { d: `M${points.join(" ")}`, class: "dq-line" }));
  }
  const last = chart.values[chart.values.length - 1];
  if (chart.fan.length && last !== null) svg.append(...fanOf(chart, x, y, last, bottom, width));
  if (last !== null) svg.append(draw("circle", { cx: round(x(chart.now)), cy: round(y(last)), r: 3, class: "dq-now" }));
  svg.append(...marksOf(chart, x, width, bottom));
  return svg;
}

function chartTable(chart) {
  const head = make("tr", {}, text("th", "", "time"), text("th", "dq-num", chart.title));
  const body = chart.ticks.filter(([at]) => at <= chart.now).map(([at, word]) => {
    const value = chart.values[Math.round(at / chart.step)];
    const shown = value === null || value === undefined ? "–" : value.toLocaleString("en-US");
    return make("tr", {}, text("td", "", word), text("td", "dq-num", shown));
  });
  return make("table", { "aria-label": chart.label }, make("thead", {}, head), make("tbody", {}, ...body));
}

function chartBox(context) {
  const title = text("h2", "", "");
  const place = make("div", { class: "dq-chart" });
  const element = make("div", {}, title, place);
  let chart = null;
  let shown = "";
  const redraw = () => {
    if (!chart) return;
    const width = Math.floor(place.getBoundingClientRect().width);
    if (!width) return;
    const key = `${width}${context.asTable}${JSON.stringify(chart)}`;
    if (key === shown) return;
    shown = key;
    if (chart.empty) place.replaceChildren(text("div", "dq-rest", chart.empty));
    else place.replaceChildren(context.asTable ? chartTable(chart) : chartOf(chart, width));
  };
  const watcher = new ResizeObserver(redraw);
  watcher.observe(place);
  context.closing.push(() => watcher.disconnect());
  return {
    element,
    draw() {
      chart = context.part("chart");
      if (chart) say(title, chart.title);
      redraw();
    },
  };
}

// A queue's depth over 30 minutes, on its own scale.
function spark(svg, values) {
  const key = values.join();
  if (svg.dataset.key === key) return;
  svg.dataset.key = key;
  const known = values.filter((value) => value !== null);
  const top = Math.max(1, ...known);
  const x = (at) => round((at / Math.max(1, values.length - 1)) * 72);
  const y = (value) => round(19 - (value / top) * 18);
  const shapes = pieces(values).flatMap((piece) => {
    const points = piece.map((at) => `${x(at)},${y(values[at])}`).join(" ");
    const area = `M${points} L${x(piece[piece.length - 1])},20 L${x(piece[0])},20Z`;
    return [draw("path", { d: area, class: "dq-area" }), draw("path", { d: `M${points}`, class: "dq-line" })];
  });
  svg.replaceChildren(...shapes);
}
