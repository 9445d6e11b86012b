// Finished pictures: endless scroll, one at a time with all settings, two against each other.
import { get, remove } from "./api.js";
import { t, onLanguage } from "./i18n.js";

const $ = (id) => document.getElementById(id);
let cursor = null, more = true, busy = false, current = null;
let pictures = []; // newest first
const picked = [];
let useSettings = () => {};

const keyOf = (p) => `${p.job}/${p.n}`;

function tile(p) {
  const li = document.createElement("li");
  li.dataset.key = keyOf(p);
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", String(picked.some((q) => keyOf(q) === keyOf(p))));
  button.setAttribute("aria-label", `${t("open")}: ${p.prompt ?? ""}`);
  const img = document.createElement("img");
  img.loading = "lazy"; img.decoding = "async"; img.alt = ""; img.width = 160; img.height = 160; img.src = p.thumbnail;
  button.append(img);
  button.addEventListener("click", () => open(p));
  li.append(button);
  return li;
}

function sayEnd() {
  $("gallery-end").textContent = pictures.length === 0 ? t("noPictures") : more ? "" : t("end", pictures.length);
}

export async function loadMore() {
  if (busy || !more) return;
  busy = true;
  try {
    const page = await get(`/v1/images?limit=60${cursor ? `&cursor=${cursor}` : ""}`);
    const known = new Set(pictures.map(keyOf));
    const fresh = page.data.filter((p) => !known.has(keyOf(p)));
    pictures.push(...fresh);
    $("gallery").append(...fresh.map(tile));
    cursor = page.next_cursor; more = cursor !== null;
    sayEnd();
  } finally { busy = false; }
  if (more && $("gallery-end").getBoundingClientRect().top < innerHeight) loadMore().catch(() => {});
}

export async function refresh() {
  const page = await get("/v1/images?limit=60");
  const known = new Set(pictures.map(keyOf));
  const fresh = page.data.filter((p) => !known.has(keyOf(p)));
  pictures.unshift(...fresh);
  $("gallery").prepend(...fresh.map(tile));
  sayEnd();
}

function open(p) {
  current = p;
  $("viewer-image").src = p.url;
  $("viewer-image").alt = p.prompt ?? "";
  $("viewer-prompt").textContent = p.prompt ?? "";
  const s = p.settings, rows = [];
  const add = (name, value) => { if (value !== undefined && value !== null && value !== "") rows.push([name, value]); };
  add(t("revised").replace(/[（(].*/, ""), s.revised_prompt !== s.prompt ? s.revised_prompt : undefined);
  add(t("negative"), s.negative_prompt); add(t("model"), p.model); add(t("size"), `${p.width} x ${p.height}`);
  add(t("steps"), s.num_inference_steps); add(t("guidance"), s.guidance_scale); add(t("seed"), s.seed ?? p.seed);
  add("Shift", s.shift); add("Sampler", s.sampler); add("dtype", s.dtype);
  add(t("created"), new Date(p.created * 1000).toLocaleString(document.documentElement.lang));
  $("viewer-settings").replaceChildren(...rows.flatMap(([name, value]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name; dd.textContent = value;
    return [dt, dd];
  }));
  $("download").href = p.url + (p.url.includes("?") ? "&" : "?") + "download=1";
  $("download").download = `${p.job}-${p.n}.png`;
  $("pick").setAttribute("aria-pressed", String(picked.some((q) => keyOf(q) === keyOf(p))));
  if (!$("viewer").open) $("viewer").showModal();
}

function neighbour(by) {
  const i = pictures.findIndex((p) => keyOf(p) === keyOf(current)) + by;
  if (i >= 0 && i < pictures.length) open(pictures[i]);
  if (i >= pictures.length - 3) loadMore().catch(() => {});
}

function pick() {
  const i = picked.findIndex((q) => keyOf(q) === keyOf(current));
  if (i >= 0) picked.splice(i, 1);
  else { picked.push(current); if (picked.length > 2) picked.shift(); }
  for (const li of $("gallery").children)
    li.firstChild.setAttribute("aria-pressed", String(picked.some((q) => keyOf(q) === li.dataset.key)));
  $("pick").setAttribute("aria-pressed", String(i < 0));
  $("compare").disabled = picked.length !== 2;
}

function compare() {
  $("ab-a").src = picked[0].url; $("ab-b").src = picked[1].url;
  $("ab-a").alt = `A: ${picked[0].prompt ?? ""}`; $("ab-b").alt = `B: ${picked[1].prompt ?? ""}`;
  $("comparer").showModal();
}

async function drop() {
  if (!confirm(t("confirmDelete"))) return;
  await remove(`/v1/jobs/${current.job}/images/${current.n}.png`);
  const key = keyOf(current);
  pictures = pictures.filter((p) => keyOf(p) !== key);
  [...$("gallery").children].find((li) => li.dataset.key === key)?.remove();
  $("viewer").close();
  sayEnd();
}

export function start(use) {
  useSettings = use;
  new IntersectionObserver((entries) => { if (entries[0].isIntersecting) loadMore().catch(() => {}); }, { rootMargin: "600px" }).observe($("gallery-end"));
  $("use-again").addEventListener("click", () => { $("viewer").close(); useSettings({ ...current.settings, model: current.model }); });
  $("viewer-close").addEventListener("click", () => $("viewer").close());
  $("viewer").addEventListener("keydown", (e) => {
    if (e.key === "ArrowRight") neighbour(1); else if (e.key === "ArrowLeft") neighbour(-1);
  });
  $("viewer").addEventListener("close", () => [...$("gallery").children].find((li) => li.dataset.key === keyOf(current))?.firstChild.focus());
  $("pick").addEventListener("click", pick);
  $("delete").addEventListener("click", () => drop().catch((e) => alert(e.message)));
  $("compare").addEventListener("click", compare);
  $("comparer-close").addEventListener("click", () => $("comparer").close());
  $("ab-slider").addEventListener("input", () => $("ab").style.setProperty("--cut", `${$("ab-slider").value}%`));
  onLanguage(sayEnd);
}
