// Keys as readers have them. A letter does nothing while somebody types, or together with Ctrl, Alt or Meta.
import { told } from "./api.js";
import * as reader from "./reader.js";

const go = (path) => (reader.here() && ["/unread", "/starred", "/all"].includes(path) ? told(reader.openView)(path) : location.assign(path));
const unread = (row) => row.classList.contains("unread");
const press = (selector) => document.querySelector(selector)?.click();

const anywhere = {
  "?": () => document.getElementById("help").showModal(),
  a: () => go("/feeds/add"),
  "/": () => (reader.here() ? told(reader.openView)("/search") : go("/search")),
  "g u": () => go("/unread"),
  "g s": () => go("/starred"),
  "g a": () => go("/all"),
  "g f": () => go("/feeds"),
  "g t": () => go("/timing"),
};
const inReader = {
  j: () => reader.step(1),
  k: () => reader.step(-1),
  n: () => reader.step(1, unread),
  p: () => reader.step(-1, unread),
  o: () => (document.body.classList.contains("reading") ? reader.toList() : reader.step(1)),
  Enter: () => inReader.o(),
  " ": () => reader.further(),
  v: () => press("article a[target=_blank].tool"),
  m: () => reader.toggle("read", "unread"),
  s: () => reader.toggle("star", "starred"),
  t: () => { press("article .menu summary"); document.querySelector("article .menu input[name=tag]")?.focus(); },
  u: () => press("#list .tools a[data-part]:not(#to-search)"),
  r: () => told(reader.reload)(),
  A: () => told(reader.markAll)(),
  J: () => reader.walkFeeds(1),
  K: () => reader.walkFeeds(-1),
  Escape: () => (document.querySelector("details.menu[open]") ? press("details.menu[open] summary") : reader.toList()),
};

let before = "";
export function begin() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
    if (typing) return event.key === "Escape" ? typing.blur() : undefined;
    const both = `${before} ${event.key}`;
    before = event.key === "g" ? "g" : "";
    const act = anywhere[both] || anywhere[event.key] || (reader.here() && inReader[event.key]);
    if (!act || event.key === "g" || ([" ", "Enter"].includes(event.key) && event.target.closest("a, button, summary, audio, video"))) return;
    event.preventDefault();
    act();
  });
}
