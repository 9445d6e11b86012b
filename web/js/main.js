// Starts the parts and ties them together.
import { getKey, setKey, whenUnauthorised, whenConnection } from "./api.js";
import * as i18n from "./i18n.js";
import * as compose from "./compose.js";
import * as jobs from "./jobs.js";
import * as gallery from "./gallery.js";
import * as monitor from "./monitor.js";

const $ = (id) => document.getElementById(id);

function theme(name) {
  if (name) document.documentElement.dataset.theme = name; else delete document.documentElement.dataset.theme;
}
theme(localStorage.getItem("danqing.theme"));
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const next = dark ? "light" : "dark";
  localStorage.setItem("danqing.theme", next);
  theme(next);
});
$("language").addEventListener("click", i18n.toggle);

const askKey = () => { if (!$("key-dialog").open) { $("key").value = getKey(); $("key-dialog").showModal(); } };
whenUnauthorised(askKey);
$("key-button").addEventListener("click", askKey);
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("key-form").addEventListener("submit", () => { setKey($("key").value.trim()); load(); });

let online = true;
whenConnection((up) => {
  if (up === online) return;
  online = up;
  $("connection").textContent = up ? "" : i18n.t("offline");
});

async function load() {
  try {
    await compose.loadModels();
    await jobs.refresh();
    await gallery.refresh();
    await gallery.loadMore();
  } catch { /* said by the connection line or the key dialog */ }
}

compose.start((job) => jobs.show(job));
jobs.start(() => gallery.refresh().catch(() => {}));
gallery.start(compose.useSettings);
monitor.start();
i18n.apply();
load();

// Other tabs' jobs, and what the server did while it could not be reached.
setInterval(() => { if (!document.hidden || !online) jobs.refresh().catch(() => {}); }, 5000);
document.addEventListener("visibilitychange", () => { if (!document.hidden) { jobs.refresh().catch(() => {}); gallery.refresh().catch(() => {}); } });
addEventListener("keydown", (e) => {
  if (e.key === "/" && !["INPUT", "TEXTAREA", "SELECT"].includes(document.activeElement.tagName) && !document.querySelector("dialog[open]")) {
    e.preventDefault();
    $("prompt").focus();
  }
});
