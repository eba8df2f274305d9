// Keyboard shortcuts, as in other feed readers. Disabled in input fields and with Ctrl, Alt or Meta.
import { reportErrors } from "./api.js";
import * as reader from "./reader.js";

const go = (path) => (reader.isReaderPage() && ["/unread", "/starred", "/all"].includes(path) ? reportErrors(reader.openView)(path) : location.assign(path));
const isUnread = (row) => row.classList.contains("unread");
const press = (selector) => document.querySelector(selector)?.click();

const globalShortcuts = {
  "?": () => document.getElementById("help").showModal(),
  a: () => go("/feeds/add"),
  "/": () => (reader.isReaderPage() ? reportErrors(reader.openView)("/search") : go("/search")),
  "g u": () => go("/unread"),
  "g s": () => go("/starred"),
  "g a": () => go("/all"),
  "g f": () => go("/feeds"),
  "g t": () => go("/timing"),
};
const readerShortcuts = {
  j: () => reader.stepEntry(1),
  k: () => reader.stepEntry(-1),
  n: () => reader.stepEntry(1, isUnread),
  p: () => reader.stepEntry(-1, isUnread),
  o: () => (document.body.classList.contains("entry-open") ? reader.closeEntry() : reader.stepEntry(1)),
  Enter: () => readerShortcuts.o(),
  " ": () => reader.scrollOrNextUnread(),
  v: () => press("article a[target=_blank].tool"),
  m: () => reader.toggle("read", "unread"),
  s: () => reader.toggle("star", "starred"),
  t: () => { press("article .menu summary"); document.querySelector("article .menu input[name=tag]")?.focus(); },
  u: () => press("#list .tools a[data-part]:not(#to-search)"),
  r: () => reportErrors(reader.reload)(),
  A: () => reportErrors(reader.markAll)(),
  J: () => reader.stepFeed(1),
  K: () => reader.stepFeed(-1),
  Escape: () => (document.querySelector("details.menu[open]") ? press("details.menu[open] summary") : reader.closeEntry()),
};

let pendingPrefix = "";
export function start() {
  addEventListener("keydown", (event) => {
    const field = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (field) return event.key === "Escape" ? field.blur() : undefined;
    const sequence = `${pendingPrefix} ${event.key}`;
    pendingPrefix = event.key === "g" ? "g" : "";
    const action = globalShortcuts[sequence] || globalShortcuts[event.key] || (reader.isReaderPage() && readerShortcuts[event.key]);
    if (!action || event.key === "g" || ([" ", "Enter"].includes(event.key) && event.target.closest("a, button, summary, audio, video"))) return;
    event.preventDefault();
    action();
  });
}
