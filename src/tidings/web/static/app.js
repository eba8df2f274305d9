// What every page has: keys, live news, the theme, questions before what cannot be undone. Everything works without it.
import { fade, part, post, told } from "./api.js";
import * as keys from "./keys.js";
import * as reader from "./reader.js";

const root = document.documentElement;

function live() {
  const news = new EventSource("/events");
  const tell = (event) => JSON.parse(event.data);
  news.addEventListener("arrived", (event) => reader.arrived(tell(event).feed, tell(event).ids.length));
  for (const kind of ["marked", "missed"]) news.addEventListener(kind, reader.counts);
  news.addEventListener("subscriptions", places);
  news.addEventListener("hello", reader.listening);
  addEventListener("pagehide", () => news.close());
}

// Feeds, folders and tags, when one came or went.
const places = told(async () => {
  const made = document.createElement("template");
  made.innerHTML = await part("/sidebar", "sidebar");
  document.querySelector("#sidebar .scroll").replaceChildren(...made.content.querySelector(".scroll").childNodes);
  folders();
  reader.choose();
});
document.addEventListener("places", places);

function folders() {
  const opened = new Set(JSON.parse(localStorage.getItem("folders") || "[]"));
  for (const folder of document.querySelectorAll("details[data-folder]")) {
    if (opened.has(folder.dataset.folder)) folder.open = true;
    folder.addEventListener("toggle", told(async () => {
      folder.open ? opened.add(folder.dataset.folder) : opened.delete(folder.dataset.folder);
      localStorage.setItem("folders", JSON.stringify([...opened]));
      const feeds = folder.querySelector("ul[data-wanted]");
      if (!folder.open || !feeds) return;
      delete feeds.dataset.wanted;
      feeds.innerHTML = await part(`/folder/${folder.dataset.folder}/feeds`, "feeds");
    }));
  }
}

function theme() {
  const button = document.getElementById("theme");
  const next = { auto: "light", light: "dark", dark: "auto" };
  button.hidden = false;
  button.addEventListener("click", told(async () => {
    root.dataset.theme = next[root.dataset.theme];
    await post("/settings/theme", { theme: root.dataset.theme });
  }));
}

document.addEventListener("click", (event) => {
  const asked = event.target.closest("[data-sure]");
  if (asked && !confirm(asked.dataset.sure)) event.preventDefault();
  const open = document.querySelector("details.menu[open]");
  if (open && !event.target.closest("details.menu")) open.open = false;
  // A touch beside the sidebar of a narrow page closes it.
  if (location.hash === "#sidebar" && (event.target.closest("#sidebar [data-view]") || !event.target.closest("#sidebar, .to-menu"))) {
    history.replaceState({}, "", location.pathname + location.search);
    location.hash = "#main";
  }
});

// Where a form leads back to its own page, what was typed stays there until it was right.
document.addEventListener("submit", told(async (event) => {
  const form = event.target;
  if (form.dataset.busy) event.submitter.textContent = form.dataset.busy;
  if (!form.matches("[data-stay]")) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { accept: "application/json" }, redirect: "manual" });
  if (answer.type === "opaqueredirect") return location.assign(location.pathname + location.search);
  form.querySelector(".problem")?.remove();
  const { error } = await answer.json();
  const said = Object.assign(document.createElement("p"), { className: "problem", textContent: error });
  said.setAttribute("role", "alert");
  event.submitter.before(said);
}));

for (const box of document.querySelectorAll(".note")) fade(box);
folders();
theme();
keys.begin();
if (reader.here()) reader.begin();
live();
if ("serviceWorker" in navigator && isSecureContext) navigator.serviceWorker.register("/sw.js");
