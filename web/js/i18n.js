// Words in English and Chinese. Elements name theirs by data-i18n (text) or data-i18n-label (aria-label).
const words = {
  en: {
    skip: "Skip to the prompt", settings: "Settings", newPicture: "New picture", monitor: "Monitor", otherLanguage: "中文", theme: "Theme",
    key: "API key", keyTitle: "This server asks for a key", save: "Save", close: "Close", prompt: "Prompt",
    promptHint: "Ctrl+Enter draws. Chinese or English.", enhance: "Enhance prompt", enhanceNow: "Write it out",
    revised: "Revised prompt (yours to edit)", dropRevised: "Do without it", negative: "Negative prompt", model: "Model", size: "Size",
    width: "Width", height: "Height", steps: "Steps", guidance: "Guidance", batch: "Pictures", seed: "Seed", dice: "New seed",
    lock: "Keep the seed", draw: "Draw", readPicture: "Read settings from a picture", queue: "In the works", noJobs: "Nothing is being drawn.",
    gallery: "Gallery", compare: "Compare two", noPictures: "No pictures yet.", picture: "Picture", useAgain: "Use these settings again",
    download: "Download", pick: "Mark to compare", delete: "Delete", compareTitle: "A and B", slider: "How much of A is seen",
    cancel: "Cancel", offline: "The server cannot be reached; trying again.", freeSize: "Free size", loaded: "loaded",
    queuedAt: (n) => `waiting, number ${n}`, left: (s) => `about ${s} left`, step: (a, b) => `step ${a} of ${b}`,
    load: "loading the model", enhancing: "writing the prompt", encode_text: "reading the prompt", denoise: "drawing", decode: "finishing",
    running: "starting", done: "Done", failed: "Failed", cancelled: "Cancelled", end: (n) => `${n} pictures`, noSettings: "That picture holds no settings.",
    notes: "Notes", temperature: "Temperature °C", load_: "Card load %", memory: "Card memory GiB", power: "Power W", host: "Host memory GiB", cpu: "CPU load %", process: "Server memory GiB",
    confirmDelete: "Delete this picture?", snapped: (w, h) => `Size set to ${w}x${h}.`, created: "Created", open: "Open picture",
  },
  zh: {
    skip: "跳到提示词", settings: "设置", newPicture: "新图片", monitor: "监控", otherLanguage: "English", theme: "主题",
    key: "API 密钥", keyTitle: "此服务器需要密钥", save: "保存", close: "关闭", prompt: "提示词",
    promptHint: "Ctrl+Enter 开始绘制。支持中文和英文。", enhance: "增强提示词", enhanceNow: "扩写提示词",
    revised: "扩写后的提示词（可编辑）", dropRevised: "不使用", negative: "反向提示词", model: "模型", size: "尺寸",
    width: "宽", height: "高", steps: "步数", guidance: "引导强度", batch: "张数", seed: "种子", dice: "换一个种子",
    lock: "固定种子", draw: "绘制", readPicture: "从图片读取设置", queue: "进行中", noJobs: "当前没有任务。",
    gallery: "图库", compare: "对比两张", noPictures: "还没有图片。", picture: "图片", useAgain: "再次使用这些设置",
    download: "下载", pick: "标记对比", delete: "删除", compareTitle: "A 与 B", slider: "A 的显示比例",
    cancel: "取消", offline: "无法连接服务器，正在重试。", freeSize: "自定义", loaded: "已加载",
    queuedAt: (n) => `排队第 ${n} 位`, left: (s) => `约剩 ${s}`, step: (a, b) => `第 ${a} / ${b} 步`,
    load: "加载模型", enhancing: "扩写提示词", encode_text: "理解提示词", denoise: "绘制中", decode: "收尾",
    running: "开始", done: "完成", failed: "失败", cancelled: "已取消", end: (n) => `共 ${n} 张`, noSettings: "这张图片没有设置信息。",
    notes: "说明", temperature: "温度 °C", load_: "显卡负载 %", memory: "显存 GiB", power: "功率 W", host: "内存 GiB", cpu: "CPU 负载 %", process: "服务内存 GiB",
    confirmDelete: "删除这张图片？", snapped: (w, h) => `尺寸已调整为 ${w}x${h}。`, created: "时间", open: "打开图片",
  },
};

let language = localStorage.getItem("danqing.language") || (navigator.language.startsWith("zh") ? "zh" : "en");
const listeners = [];

export const t = (key, ...args) => {
  const word = words[language][key] ?? words.en[key] ?? key;
  return typeof word === "function" ? word(...args) : word;
};
export const onLanguage = (f) => listeners.push(f);

export function apply() {
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const e of document.querySelectorAll("[data-i18n]")) e.textContent = t(e.dataset.i18n);
  for (const e of document.querySelectorAll("[data-i18n-label]")) e.setAttribute("aria-label", t(e.dataset.i18nLabel));
  document.getElementById("language").lang = language === "zh" ? "en" : "zh-CN";
  for (const f of listeners) f();
}

export function toggle() {
  language = language === "zh" ? "en" : "zh";
  localStorage.setItem("danqing.language", language);
  apply();
}
