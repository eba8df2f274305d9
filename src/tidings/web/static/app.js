// Code of every page: keyboard shortcuts, live updates (SSE), theme, confirmation dialogs. Optional:
// every page works without JavaScript.
import { dismissLater, fetchPart, post, reportErrors } from "./api.js";
import * as reader from "./reader.js";
import * as shortcuts from "./shortcuts.js";

const root = document.documentElement;

function listenForEvents() {
  const eventSource = new EventSource("/events");
  const parseData = (event) => JSON.parse(event.data);
  eventSource.addEventListener("entries_added", (event) => reader.onNewEntries(parseData(event).feed, parseData(event).ids.length));
  for (const kind of ["entry_state_changed", "events_lost"]) eventSource.addEventListener(kind, reader.scheduleRecount);
  eventSource.addEventListener("subscriptions", reloadSidebar);
  eventSource.addEventListener("connected", reader.onConnected);
  addEventListener("pagehide", () => eventSource.close());
}

// Reload feeds, folders and tags after one was added or removed.
const reloadSidebar = reportErrors(async () => {
  const fragment = document.createElement("template");
  fragment.innerHTML = await fetchPart("/sidebar", "sidebar");
  document.querySelector("#sidebar .scroll").replaceChildren(...fragment.content.querySelector(".scroll").childNodes);
  setUpFolders();
  reader.highlightCurrentView();
});
document.addEventListener("sidebar-changed", reloadSidebar);

function setUpFolders() {
  const openFolders = new Set(JSON.parse(localStorage.getItem("folders") || "[]"));
  for (const folder of document.querySelectorAll("details[data-folder]")) {
    if (openFolders.has(folder.dataset.folder)) folder.open = true;
    folder.addEventListener("toggle", reportErrors(async () => {
      folder.open ? openFolders.add(folder.dataset.folder) : openFolders.delete(folder.dataset.folder);
      localStorage.setItem("folders", JSON.stringify([...openFolders]));
      const feeds = folder.querySelector("ul[data-lazy]");
      if (!folder.open || !feeds) return;
      delete feeds.dataset.lazy;
      feeds.innerHTML = await fetchPart(`/folder/${folder.dataset.folder}/feeds`, "feeds");
    }));
  }
}

function setUpThemeButton() {
  const button = document.getElementById("theme");
  const next = { auto: "light", light: "dark", dark: "auto" };
  button.hidden = false;
  button.addEventListener("click", reportErrors(async () => {
    root.dataset.theme = next[root.dataset.theme];
    await post("/settings/theme", { theme: root.dataset.theme });
  }));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-confirm]");
  if (button && !confirm(button.dataset.confirm)) event.preventDefault();
  const menu = document.querySelector("details.menu[open]");
  if (menu && !event.target.closest("details.menu")) menu.open = false;
  // On narrow pages, a tap outside of the sidebar closes it.
  if (location.hash === "#sidebar" && (event.target.closest("#sidebar [data-view]") || !event.target.closest("#sidebar, .to-menu"))) {
    history.replaceState({}, "", location.pathname + location.search);
    location.hash = "#main";
  }
});

// Forms that return to their own page are sent in the background, so that the input is kept after
// an error.
document.addEventListener("submit", reportErrors(async (event) => {
  const form = event.target;
  if (form.dataset.busy) event.submitter.textContent = form.dataset.busy;
  if (!form.matches("[data-keep-input]")) return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const response = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { accept: "application/json" }, redirect: "manual" });
  if (response.type === "opaqueredirect") return location.assign(location.pathname + location.search);
  form.querySelector(".error-box")?.remove();
  const { error } = await response.json();
  const message = Object.assign(document.createElement("p"), { className: "error-box", textContent: error });
  message.setAttribute("role", "alert");
  event.submitter.before(message);
}));

for (const toast of document.querySelectorAll(".toast")) dismissLater(toast);
setUpFolders();
setUpThemeButton();
shortcuts.start();
if (reader.isReaderPage()) reader.start();
listenForEvents();
if ("serviceWorker" in navigator && isSecureContext) navigator.serviceWorker.register("/sw.js");
