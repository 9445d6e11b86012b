// The form: settings in, a request out.
import { get, post, postBytes, events } from "./api.js";
import { t, onLanguage } from "./i18n.js";

const $ = (id) => document.getElementById(id);
let models = [];
let locked = false;

const model = () => models.find((m) => m.id === $("model").value) || models[0];
export const say = (text) => { $("message").textContent = text || ""; };
const randomSeed = () => crypto.getRandomValues(new Uint32Array(1))[0];
const snap = (value, m) => Math.max(m, Math.round(value / m) * m);

function fillPresets() {
  const m = model();
  if (!m) return;
  const chosen = $("preset").value;
  const d = m.defaults;
  const sizes = d.sizes.length ? d.sizes : [[d.width, d.height], ...[[2, 1], [1, 2], [3, 2], [2, 3]].map(([a, b]) => {
    const side = Math.sqrt(d.width * d.height / (a * b));
    return [snap(a * side, m.size_multiple), snap(b * side, m.size_multiple)];
  })];
  $("preset").replaceChildren(...sizes.map(([w, h]) => new Option(`${w} x ${h}`, `${w}x${h}`)), new Option(t("freeSize"), "free"));
  if (chosen) $("preset").value = chosen;
  if (!$("preset").value) $("preset").value = "free";
}

function useModel() {
  const m = model();
  if (!m) return;
  const d = m.defaults;
  $("preset").value = "";
  fillPresets();
  $("width").value = d.width; $("height").value = d.height;
  $("width").step = $("height").step = m.size_multiple;
  $("preset").value = `${d.width}x${d.height}`;
  $("steps").value = d.num_inference_steps; $("steps").max = m.limits.max_steps;
  $("guidance").value = d.guidance_scale;
  $("batch").max = m.limits.max_images;
  $("enhance").checked = d.prompt_enhancer;
  $("enhance").disabled = $("enhance-now").disabled = !m.has_prompt_enhancer;
}

export async function loadModels() {
  models = (await get("/v1/models")).data;
  const chosen = $("model").value;
  $("model").replaceChildren(...models.map((m) => new Option(m.id + (m.loaded ? ` (${t("loaded")})` : ""), m.id)));
  if (chosen && models.some((m) => m.id === chosen)) $("model").value = chosen;
  else useModel();
}

function snapSize() {
  const m = model();
  if (!m) return;
  const w = snap(+$("width").value || m.defaults.width, m.size_multiple), h = snap(+$("height").value || m.defaults.height, m.size_multiple);
  if (w !== +$("width").value || h !== +$("height").value) say(t("snapped", w, h));
  $("width").value = w; $("height").value = h;
  $("preset").value = `${w}x${h}`;
  if (!$("preset").value) $("preset").value = "free";
}

function setLock(on) {
  locked = on;
  $("lock").setAttribute("aria-pressed", String(on));
  $("lock").textContent = on ? "🔒" : "🔓";
}

export function useSettings(s) {
  if (!s || typeof s !== "object") return;
  $("prompt").value = s.prompt ?? "";
  $("negative").value = s.negative_prompt ?? "";
  const revised = s.revised_prompt && s.revised_prompt !== s.prompt ? s.revised_prompt : "";
  $("revised").value = revised; $("revised-box").hidden = !revised;
  if (models.some((m) => m.id === s.model)) $("model").value = s.model;
  if (s.width && s.height) { $("width").value = s.width; $("height").value = s.height; snapSize(); }
  if (s.num_inference_steps) $("steps").value = s.num_inference_steps;
  if (s.guidance_scale !== undefined) $("guidance").value = Math.round(s.guidance_scale * 1000) / 1000;
  if (s.seed !== undefined) { $("seed").value = s.seed; setLock(true); }
  $("batch").value = 1; $("enhance").checked = false;
  say(""); $("prompt").focus();
}

const request = () => {
  const r = {
    prompt: $("prompt").value, model: $("model").value, width: +$("width").value, height: +$("height").value,
    num_inference_steps: +$("steps").value, guidance_scale: +$("guidance").value, n: Math.max(1, +$("batch").value || 1),
    seed: +$("seed").value, enhance: $("enhance").checked,
  };
  if ($("negative").value) r.negative_prompt = $("negative").value;
  if (!$("revised-box").hidden && $("revised").value.trim()) { r.revised_prompt = $("revised").value; r.enhance = false; }
  return r;
};

async function enhanceNow() {
  $("enhance-now").disabled = true;
  say("");
  $("revised-box").hidden = false;
  $("revised").value = "";
  try {
    const body = JSON.stringify({ prompt: $("prompt").value, model: $("model").value, stream: true, seed: +$("seed").value || 0, size: `${$("width").value}x${$("height").value}` });
    for await (const { event, data } of events("/v1/enhance", { method: "POST", body, headers: { "Content-Type": "application/json" } })) {
      if (event === "text") $("revised").value += data.text;
      else if (event === "done") $("revised").value = data.text;
      else if (event === "failed") say(data.error.message);
    }
  } catch (error) { say(error.message); }
  $("revised-box").hidden = !$("revised").value;
  $("enhance-now").disabled = false;
}

async function readPicture(file) {
  try {
    const { metadata } = await postBytes("/v1/images/settings", file);
    if (metadata.danqing && typeof metadata.danqing === "object") return useSettings(metadata.danqing);
    if (!metadata.parameters) return say(t("noSettings"));
    const m = metadata.parameters.match(/^([\s\S]*?)(?:\nNegative prompt: ([\s\S]*?))?\nSteps: (\d+)(.*)$/);
    if (!m) return say(t("noSettings"));
    const tail = Object.fromEntries([...m[4].matchAll(/, ([\w ]+): ([^,]+)/g)].map((x) => [x[1], x[2]]));
    const [width, height] = (tail.Size || "").split("x").map(Number);
    useSettings({ prompt: m[1], negative_prompt: m[2] || "", num_inference_steps: +m[3], guidance_scale: +tail["CFG scale"] || undefined, seed: tail.Seed ? +tail.Seed : undefined, width, height });
  } catch (error) { say(error.message); }
}

export function start(onJob) {
  $("model").addEventListener("change", useModel);
  $("preset").addEventListener("change", () => {
    const [w, h] = $("preset").value.split("x").map(Number);
    if (w && h) { $("width").value = w; $("height").value = h; }
  });
  for (const id of ["width", "height"]) $(id).addEventListener("change", snapSize);
  $("seed").value = randomSeed();
  $("dice").addEventListener("click", () => { $("seed").value = randomSeed(); setLock(false); });
  $("lock").addEventListener("click", () => setLock(!locked));
  $("enhance-now").addEventListener("click", enhanceNow);
  $("revised-drop").addEventListener("click", () => { $("revised").value = ""; $("revised-box").hidden = true; });
  $("read-picture").addEventListener("change", () => { if ($("read-picture").files[0]) readPicture($("read-picture").files[0]); $("read-picture").value = ""; });
  addEventListener("dragover", (e) => { e.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", () => document.body.classList.remove("dropping"));
  addEventListener("drop", (e) => {
    e.preventDefault(); document.body.classList.remove("dropping");
    if (e.dataTransfer.files[0]) readPicture(e.dataTransfer.files[0]);
  });
  $("compose").addEventListener("keydown", (e) => {
    // While an input method composes, Enter belongs to it.
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey) && !e.isComposing) { e.preventDefault(); $("compose").requestSubmit(); }
    else if (e.key === "Enter" && e.target.tagName === "INPUT" && e.target.type !== "submit") e.preventDefault();
  });
  $("compose").addEventListener("submit", async (e) => {
    e.preventDefault();
    say("");
    snapSize();
    try {
      const job = await post("/v1/jobs", request(), { "Idempotency-Key": crypto.randomUUID() });
      onJob(job);
      if (!locked) $("seed").value = randomSeed();
    } catch (error) { say(error.status === 0 ? t("offline") : error.message); }
  });
  onLanguage(fillPresets);
}
