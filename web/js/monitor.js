// The card and the server over time.
import { get } from "./api.js";
import { t, onLanguage } from "./i18n.js";

const $ = (id) => document.getElementById(id);
const GiB = 2 ** 30;
const charts = [
  ["temperature", (s) => s.temperature], ["load_", (s) => s.load === null ? null : s.load * 100],
  ["memory", (s) => s.memory_used === null ? null : s.memory_used / GiB], ["power", (s) => s.power], ["cpu", (s) => s.cpu_load === null ? null : s.cpu_load * 100],
  ["host", (s) => s.host_used / GiB], ["process", (s) => s.process / GiB],
];
let samples = [], timer = 0;

function draw() {
  // One chart a number; with several cards one a card of what cards have.
  const cards = samples.at(-1)?.cards ?? [];
  const perCard = new Set(["temperature", "load_", "memory", "power"]);
  const wanted = cards.length < 2 ? charts.map(([name, value]) => [name, name, value]) : [
    ...cards.flatMap((card) => charts.filter(([name]) => perCard.has(name)).map(([name, value]) => [name, `${name} ${card.id}`,
      (s) => { const c = s.cards.find((x) => x.id === card.id); return c ? value(c) : null; }])),
    ...charts.filter(([name]) => !perCard.has(name)).map(([name, value]) => [name, name, value])];
  $("charts").replaceChildren(...wanted.flatMap(([name, label, value]) => {
    const points = samples.map((s) => [s.time, value(s)]).filter(([, v]) => v !== null && v !== undefined);
    if (points.length === 0) return [];
    const values = points.map(([, v]) => v), top = Math.max(...values, 1e-9) * 1.05, t0 = points[0][0], dt = Math.max(1, points.at(-1)[0] - t0);
    const figure = document.createElement("figure"), caption = document.createElement("figcaption");
    caption.textContent = `${t(name)}${label.slice(name.length)}: ${values.at(-1).toFixed(["temperature", "power"].includes(name) || name.includes("load") ? 0 : 2)}`;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.setAttribute("viewBox", "0 0 100 50"); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img"); svg.setAttribute("aria-label", caption.textContent);
    path.setAttribute("d", points.map(([x, v], i) => `${i ? "L" : "M"}${((x - t0) / dt * 100).toFixed(2)} ${(50 - v / top * 50).toFixed(2)}`).join(""));
    svg.append(path); figure.append(caption, svg);
    return [figure];
  }));
}

async function poll() {
  try {
    const s = await get(`/v1/system?since=${samples.at(-1)?.time ?? 0}`);
    $("device").textContent = `${s.device.name}: ${s.device.description}`;
    samples = [...samples, ...s.samples].slice(-1800);
    draw();
  } catch { /* offline is said elsewhere */ }
}

export function start() {
  $("monitor-button").addEventListener("click", () => {
    const open = $("monitor").hidden;
    $("monitor").hidden = !open;
    $("monitor-button").setAttribute("aria-expanded", String(open));
    clearInterval(timer);
    if (open) { poll(); timer = setInterval(poll, 2000); }
  });
  onLanguage(draw);
}
