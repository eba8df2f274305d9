// Talking to the service: changes that answer at once, parts of pages, and notes that can be undone.

export async function post(path, fields) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { accept: "application/json", "x-csrf": document.body.dataset.csrf },
    body: new URLSearchParams(fields),
  });
  if (answer.status === 401) location.assign("/login?next=" + encodeURIComponent(location.pathname + location.search));
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(told.error || answer.statusText);
  return told;
}

export async function part(path, which) {
  const url = new URL(path, location.href);
  url.searchParams.set("part", which);
  const answer = await fetch(url);
  if (answer.redirected && new URL(answer.url).pathname === "/login") location.reload();
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.text();
}

export async function json(path) {
  const answer = await fetch(path, { headers: { accept: "application/json" } });
  if (!answer.ok) throw new Error(answer.statusText);
  return answer.json();
}

export function note(text, { label, act } = {}) {
  const box = document.createElement("div");
  box.className = "note";
  box.append(Object.assign(document.createElement("span"), { textContent: text }));
  if (label) {
    const button = Object.assign(document.createElement("button"), { className: "link", textContent: label, type: "button" });
    button.addEventListener("click", () => { box.remove(); act(); });
    box.append(button);
  }
  document.getElementById("notes").replaceChildren(box);
  fade(box);
}

export function fade(box) {
  setTimeout(() => box.remove(), box.querySelector("button") ? 10000 : 5000);
}

// What goes wrong is said, wherever it happens.
export const told = (work) => (...given) => Promise.resolve(work(...given)).catch((error) => note(error.message));
