// Service worker: makes the reader installable. Caches only its own static files and the offline page,
// nothing private.
const CACHE_NAME = "tidings-VERSION";
const FILES = ["tidings.css", "app.js", "api.js", "reader.js", "shortcuts.js", "icon.svg"].map((name) => `/static/VERSION/${name}`);

addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE_NAME).then((cache) => cache.addAll([...FILES, "/offline"])).then(() => skipWaiting()));
});
addEventListener("activate", (event) => {
  const old = caches.keys().then((names) => Promise.all(names.filter((name) => name !== CACHE_NAME).map((name) => caches.delete(name))));
  event.waitUntil(old.then(() => clients.claim()));
});
addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  if (event.request.mode === "navigate") {
    event.respondWith(fetch(event.request).catch(() => caches.match("/offline")));
  } else if (url.origin === location.origin && url.pathname.startsWith("/static/")) {
    event.respondWith(fetch(event.request).catch(() => caches.match(url.pathname)));
  }
});
