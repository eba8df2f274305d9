// What every page has: keys, live news, the theme, questions before what cannot be undone. Everything works without it.
import { fade, part, post, told } from "./api.js";
import * as keys from "./keys.js";
import * as reader from "./reader.js";

const root = document.documentElement;

function live() {
  const news = new EventSource("/events");
  const tell = (event) => JSON.parse(event.data);
  news.addEventListener("arrived", (event) => reader.arrived(tell(event).feed, tell(event).ids.length));
  for (const kind of ["marked", "subscriptions", "missed"]) news.addEventListener(kind, reader.counts);
  news.addEventListener("hello", reader.listening);
  addEventListener("pagehide", () => news.close());
}

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

for (const box of document.querySelectorAll(".note")) fade(box);
folders();
theme();
keys.begin();
if (reader.here()) reader.begin();
live();
if ("serviceWorker" in navigator && isSecureContext) navigator.serviceWorker.register("/sw.js");
