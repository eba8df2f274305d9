// Requests to the server: POST with CSRF token, page fragments, JSON; toast messages with Undo.

export async function post(path, fields) {
  const response = await fetch(path, {
    method: "POST",
    headers: { accept: "application/json", "x-csrf": document.body.dataset.csrf },
    body: new URLSearchParams(fields),
  });
  if (response.status === 401) location.assign("/login?next=" + encodeURIComponent(location.pathname + location.search));
  const result = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(result.error || document.body.dataset.failed);
  return result;
}

// Fetch a fragment of a page ("list", "article", "sidebar", "feeds") as HTML.
export async function fetchPart(path, name) {
  const url = new URL(path, location.href);
  url.searchParams.set("part", name);
  const response = await fetch(url);
  if (response.redirected && new URL(response.url).pathname === "/login") location.reload();
  if (!response.ok) throw new Error(document.body.dataset.failed);
  return response.text();
}

export async function getJson(path) {
  const response = await fetch(path, { headers: { accept: "application/json" } });
  if (!response.ok) throw new Error(document.body.dataset.failed);
  return response.json();
}

export function showToast(text, { label, act } = {}) {
  const toast = document.createElement("div");
  toast.className = "toast";
  toast.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (label) {
    const button = Object.assign(document.createElement("button"), { className: "link", textContent: label, type: "button" });
    button.addEventListener("click", () => { toast.remove(); act(); });
    toast.append(button);
  }
  document.getElementById("toasts").replaceChildren(toast);
  dismissLater(toast);
}

export function dismissLater(toast) {
  setTimeout(() => toast.remove(), toast.querySelector("button") ? 10000 : 5000);
}

// Wrap a function so that its errors, also asynchronous ones, are shown as a toast. fetch() raises a TypeError without a connection.
export const reportErrors = (action) => (...values) =>
  Promise.resolve(action(...values)).catch((error) => showToast(error instanceof TypeError ? document.body.dataset.failed : error.message));
