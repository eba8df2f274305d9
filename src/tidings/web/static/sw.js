// Makes the reader installable: its own files are kept, and without a connection a page says so. Nothing private is kept.
const KEPT = "tidings-VERSION";
const FILES = ["tidings.css", "app.js", "api.js", "reader.js", "keys.js", "icon.svg"].map((name) => `/static/VERSION/${name}`);

addEventListener("install", (event) => {
  event.waitUntil(caches.open(KEPT).then((cache) => cache.addAll([...FILES, "/offline"])).then(() => skipWaiting()));
});
addEventListener("activate", (event) => {
  const old = caches.keys().then((names) => Promise.all(names.filter((name) => name !== KEPT).map((name) => caches.delete(name))));
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
