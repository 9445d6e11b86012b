// Calls to the server: the key, errors as one kind of exception, server-sent events over fetch (EventSource cannot send
// a key).
const KEY = "danqing.key";

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

export const getKey = () => localStorage.getItem(KEY) || "";
export const setKey = (key) => key ? localStorage.setItem(KEY, key) : localStorage.removeItem(KEY);

let onUnauthorised = () => {};
export const whenUnauthorised = (f) => { onUnauthorised = f; };
let onConnection = () => {};
export const whenConnection = (f) => { onConnection = f; };

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (getKey()) headers.Authorization = `Bearer ${getKey()}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    onConnection(false);
    throw new ApiError(0, "offline");
  }
  onConnection(true);
  if (answer.ok) return answer;
  let message = `${answer.status} ${answer.statusText}`;
  try { message = (await answer.json()).error.message; } catch { /* not ours */ }
  if (answer.status === 401) onUnauthorised();
  throw new ApiError(answer.status, message);
}

export const get = async (path) => (await send(path)).json();
export const remove = (path) => send(path, { method: "DELETE" });
export const post = async (path, body, headers = {}) =>
  (await send(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } })).json();
export const postBytes = async (path, body) =>
  (await send(path, { method: "POST", body, headers: { "Content-Type": "application/octet-stream" } })).json();

/** Yields {event, data} until the stream ends or `signal` aborts. */
export async function* events(path, options = {}) {
  const answer = await send(path, options);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name !== "AbortError") { onConnection(false); throw new ApiError(0, "offline"); }
      throw error;
    }
    if (part.done) return;
    text += part.value;
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      let event = "message", data = "";
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) event = line.slice(7);
        else if (line.startsWith("data: ")) data += line.slice(6);
      }
      if (data) yield { event, data: JSON.parse(data) };
    }
  }
}
