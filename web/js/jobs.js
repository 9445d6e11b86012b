// What waits and what is being drawn, live.
import { get, remove, events } from "./api.js";
import { t, onLanguage } from "./i18n.js";

const $ = (id) => document.getElementById(id);
const shown = new Map(); // id -> {element, job, progress, controller}
let onDone = () => {};

const seconds = (s) => s >= 60 ? `${Math.floor(s / 60)}:${String(Math.round(s % 60)).padStart(2, "0")}` : `${Math.max(1, Math.round(s))} s`;

function describe(entry) {
  const { job, progress: p } = entry;
  if (job.status === "failed") return `${t("failed")}: ${job.error?.message ?? ""}`;
  if (job.status === "cancelled" || job.status === "done") return t(job.status);
  if (job.status === "queued") return t("queuedAt", job.position || p?.position || 1) + (p?.eta_seconds > 1 ? `, ${t("left", seconds(p.eta_seconds))}` : "");
  const stage = p?.stage === "enhance" ? t("enhancing") : t(p?.stage || "running");
  const step = p?.stage === "denoise" && p.steps ? `, ${t("step", p.step, p.steps)}` : "";
  return stage + step + (p?.eta_seconds > 1 ? `, ${t("left", seconds(p.eta_seconds))}` : "");
}

function render(entry) {
  const text = describe(entry);
  entry.status.textContent = text;
  const p = entry.progress;
  const active = entry.job.status === "running" && p && p.steps > 0;
  if (active) { entry.bar.max = p.steps; entry.bar.value = p.step; } else if (entry.job.status === "running") entry.bar.removeAttribute("value");
  else { entry.bar.max = 1; entry.bar.value = entry.job.status === "done" ? 1 : 0; }
  entry.cancel.hidden = !["queued", "running"].includes(entry.job.status);
  entry.cancel.textContent = t("cancel");
  // For screen readers: stages, not every step.
  const spoken = `${entry.job.status} ${p?.stage ?? ""}`;
  if (entry.spoken !== spoken) { entry.spoken = spoken; $("progress-text").textContent = text; }
}

function end(entry, job) {
  entry.job = job;
  render(entry);
  if (job.status === "done") onDone(job);
  setTimeout(() => {
    if (job.status === "failed") return; // stays until the page is left, so that it can be read
    entry.element.remove(); shown.delete(job.id); $("no-jobs").hidden = shown.size > 0;
  }, job.status === "done" ? 600 : 1500);
}

async function follow(entry) {
  const id = entry.job.id;
  for (;;) {
    try {
      for await (const { event, data } of events(`/v1/jobs/${id}/events`, { signal: entry.controller.signal })) {
        if (["done", "failed", "cancelled"].includes(event)) return end(entry, data.status ? data : { ...entry.job, status: event });
        if (event === "preview") {
          if (data.image === 0 || entry.shownImage === data.image) { entry.picture.src = `data:image/${data.format};base64,${data.b64_json}`; entry.picture.hidden = false; entry.blank.hidden = true; }
          continue;
        }
        if (event === "queued") { entry.job.status = "queued"; entry.job.position = data.position; }
        else if (event !== "image") entry.job.status = "running";
        entry.progress = { ...entry.progress, ...data };
        render(entry);
      }
      return end(entry, await get(`/v1/jobs/${id}`)); // closed without an end: look
    } catch (error) {
      if (error.name === "AbortError") return;
      if (error.status === 404) { entry.element.remove(); shown.delete(id); return; }
      await new Promise((done) => setTimeout(done, 2000)); // offline: the job goes on without us
    }
  }
}

export function show(job) {
  if (shown.has(job.id)) return;
  const element = document.createElement("li");
  element.dataset.job = job.id;
  const holder = document.createElement("div");
  const blank = document.createElement("div"); blank.className = "blank";
  const picture = document.createElement("img"); picture.alt = ""; picture.hidden = true;
  holder.append(blank, picture);
  const middle = document.createElement("div");
  const prompt = document.createElement("p"); prompt.textContent = job.request.prompts.join(" / ") || "—"; prompt.dir = "auto";
  const bar = document.createElement("progress"); bar.setAttribute("aria-label", prompt.textContent);
  const status = document.createElement("p"); status.className = "hint status";
  middle.append(prompt, bar, status);
  const cancel = document.createElement("button"); cancel.type = "button"; cancel.className = "cancel";
  cancel.addEventListener("click", async () => {
    cancel.disabled = true;
    try { await remove(`/v1/jobs/${job.id}`); } catch { cancel.disabled = false; }
  });
  element.append(holder, middle, cancel);
  const entry = { element, job, progress: job.progress, picture, blank, bar, status, cancel, controller: new AbortController() };
  shown.set(job.id, entry);
  $("jobs").append(element);
  $("no-jobs").hidden = true;
  render(entry);
  follow(entry);
}

/** Jobs of other tabs and of before a reload. */
export async function refresh() {
  for (const job of (await get("/v1/queue")).data) show(job);
}

export function start(done) {
  onDone = done;
  onLanguage(() => { for (const entry of shown.values()) render(entry); });
}
