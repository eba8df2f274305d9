// The three panes: only what changes is asked for. Without this file every link and form does the same by whole pages.
import { json, note, part, post, told } from "./api.js";

const list = document.getElementById("list");
const main = document.getElementById("main");
const nothing = main && !main.querySelector("article") ? main.innerHTML : "";
export const here = () => Boolean(list);

// --- what is shown ---------------------------------------------------------------------------------------------------

export const entries = () => [...list.querySelectorAll(".entry")];
export const current = () => list?.querySelector(".entry a[aria-current]")?.closest(".entry");
const view = () => list?.querySelector(".bar").dataset;
const withEntry = (href, id) => {
  const url = new URL(href, location.href);
  id ? url.searchParams.set("entry", id) : url.searchParams.delete("entry");
  url.hash = "";
  return url.pathname + url.search;
};

let wanted = 0;
export async function openView(href, push = true) {
  const mine = ++wanted;
  await settled();
  const html = await part(withEntry(href), "list");
  if (mine !== wanted) return; // another was opened meanwhile
  list.innerHTML = html;
  list.scrollTop = 0;
  if (push) {
    closeArticle();
    history.pushState({}, "", withEntry(href));
  }
  const open = main.querySelector("article");
  if (open) document.querySelector(`#e${open.dataset.id} a`)?.setAttribute("aria-current", "true");
  else document.title = `${view().search || list.querySelector("h1").textContent} – tidings`;
  choose();
  settle();
  counts();
  if (!push) return;
  const field = list.querySelector("input[type=search]");
  field && !field.value ? field.focus() : list.focus();
}

// Where one is, in the sidebar.
export function choose() {
  for (const link of document.querySelectorAll("#sidebar [data-view]")) {
    link.dataset.view === view()?.view ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
}

// The list anew; what is being read stays open.
export const reload = () => openView(location.pathname + location.search, false);

function closeArticle() {
  document.body.classList.remove("reading");
  current()?.querySelector("a").removeAttribute("aria-current");
  main.innerHTML = nothing;
}

export async function openEntry(row, { push = true } = {}) {
  current()?.querySelector("a").removeAttribute("aria-current");
  const link = row.querySelector("a");
  link.setAttribute("aria-current", "true");
  row.scrollIntoView({ block: "nearest" });
  const html = await part(`/entry/${row.dataset.id}`, "article");
  if (current() !== row) return; // another was opened meanwhile
  main.innerHTML = html;
  main.scrollTop = 0;
  const reading = document.body.classList.contains("reading");
  document.body.classList.add("reading");
  if (push) history[reading ? "replaceState" : "pushState"]({}, "", link.getAttribute("href"));
  document.title = `${main.querySelector("h1").textContent} – tidings`;
  main.focus({ preventScroll: true });
  if (row.classList.contains("unread")) await mark(row, "read", "1");
  if (entries().indexOf(row) > entries().length - 8) more();
}

async function openWhole(link) {
  link.textContent = link.dataset.busy;
  const html = await part(`/entry/${link.closest("article").dataset.id}?whole=1`, "article");
  if (link.isConnected) main.innerHTML = html;
}

export function toList() {
  const row = current();
  if (!document.body.classList.contains("reading")) return;
  closeArticle();
  history.pushState({}, "", withEntry(location.href));
  row?.querySelector("a").focus();
}

// --- walking ---------------------------------------------------------------------------------------------------------

export function step(by, wanted = () => true) {
  const every = entries();
  let at = every.indexOf(current());
  if (at < 0 && by < 0) at = every.length;
  for (at += by; at >= 0 && at < every.length; at += by) if (wanted(every[at])) return told(openEntry)(every[at]);
  if (by > 0) more();
}

// A page further in the article, which the browser does by itself; at its end, the next that is unread.
export function further() {
  const read = main.scrollTop + main.clientHeight >= main.scrollHeight - 4;
  if (read || !document.body.classList.contains("reading")) step(1, (row) => row.classList.contains("unread"));
  else main.scrollBy({ top: 0.9 * main.clientHeight });
}

export function walkFeeds(by) {
  const links = [...document.querySelectorAll("#sidebar [data-view]")].filter((link) => link.checkVisibility());
  const at = links.findIndex((link) => link.hasAttribute("aria-current"));
  const next = links[at + by];
  if (next) told(openView)(next.getAttribute("href"));
}

let loading = false;
async function more() {
  const link = list.querySelector(".more a");
  if (!link || loading) return;
  loading = true;
  try {
    const html = await part(link.getAttribute("href"), "list");
    if (!link.isConnected) return;
    const made = document.createElement("template");
    made.innerHTML = html;
    list.querySelector(".entries").append(...made.content.querySelectorAll(".entry"));
    const next = made.content.querySelector(".more");
    next ? link.closest(".more").replaceWith(next) : link.closest(".more").remove();
    settle();
  } finally {
    loading = false;
  }
}

// --- marks -----------------------------------------------------------------------------------------------------------

function show(marks) {
  const row = document.getElementById(`e${marks.id}`);
  row?.classList.toggle("unread", marks.unread);
  row?.classList.toggle("starred", marks.starred);
  if (!marks.unread) row?.querySelector(".status")?.remove();
  const article = main.querySelector(`article[data-id="${marks.id}"]`);
  if (!article) return;
  for (const [name, on, value] of [["star", marks.starred, marks.starred ? "0" : "1"], ["read", marks.unread, marks.unread ? "1" : "0"]]) {
    const button = article.querySelector(`[data-do=${name}]`);
    button.setAttribute("aria-pressed", on);
    button.value = value;
  }
}

// At once on the page, then in the store, one wish after the other; what the store says to the last is shown.
const underWay = new Map();
// A list is asked for when all of that is done: it would show as unread what was read a moment ago.
const settled = () => Promise.allSettled([sendPassed(), ...underWay.values()]);
export async function mark(row, name, value) {
  if (name === "read") row.classList.toggle("unread", value === "0");
  if (name === "star") row.classList.toggle("starred", value === "1");
  const id = row.dataset.id;
  const before = Promise.resolve(underWay.get(id)).catch(() => {});
  const mine = before.then(() => post(`/entry/${id}`, { [name]: value }));
  underWay.set(id, mine);
  try {
    const marks = await mine;
    if (underWay.get(id) === mine) show(marks);
  } finally {
    if (underWay.get(id) === mine) underWay.delete(id);
  }
  counts();
}

export const toggle = (name, className) => {
  const row = current();
  if (row) told(mark)(row, name, row.classList.contains(className) === (name === "read") ? "1" : "0");
};

async function fromArticle(form, button) {
  const id = main.querySelector("article").dataset.id;
  const fields = button?.name ? { [button.name]: button.value } : Object.fromEntries(new FormData(form));
  const marks = await post(form.getAttribute("action"), fields);
  if (!["star", "read"].includes(button?.name)) {
    main.innerHTML = await part(`/entry/${id}`, "article"); // tags and rating are drawn anew
    main.querySelector(".menu summary")?.focus();
    if (button?.name !== "rating") document.dispatchEvent(new Event("places"));
  }
  show(marks);
  counts();
}

export async function markAll() {
  const { view: name, search, until } = view();
  await settled();
  const done = await post("/mark-all", { view: name, q: search, until });
  await reload();
  counts();
  const undo = async () => { await post("/undo", {}); await reload(); counts(); };
  note(done.text, done.ids ? { label: document.body.dataset.undo, act: told(undo) } : {});
}

// --- counts ----------------------------------------------------------------------------------------------------------

async function recount() {
  const now = await json("/counts");
  const of = (name) => {
    const [kind, ...rest] = name.split("/");
    return ["unread", "starred"].includes(kind) ? now[kind] : now[`${kind}s`]?.[rest.join("/")];
  };
  for (const place of document.querySelectorAll("[data-count]")) {
    const number = of(place.dataset.count);
    place.textContent = number ? number.toLocaleString("en") : "";
  }
  if ("setAppBadge" in navigator) now.unread ? navigator.setAppBadge(now.unread) : navigator.clearAppBadge();
  return of;
}

let waiting = 0;
export function counts() {
  clearTimeout(waiting);
  waiting = setTimeout(told(recount), 150);
}

// We hear of news from now on; what came between the making of the page and now is looked for.
export const listening = told(async () => {
  const of = await recount();
  if (list && !entries().length && of(view().view)) await reload();
});

// --- new entries -----------------------------------------------------------------------------------------------------

let fresh = 0;
const concerns = (feed) => {
  const name = view().view;
  if (["unread", "all"].includes(name) || name === `feed/${feed}`) return true;
  const link = document.querySelector(`#sidebar [data-view="feed/${feed}"]`);
  return name.startsWith("folder/") && link?.closest("details")?.dataset.folder === name.slice(7);
};

export function arrived(feed, number) {
  counts();
  if (!list || !concerns(feed)) return;
  fresh += number;
  const button = list.querySelector("#fresh");
  button.textContent = button.dataset.text.replace("#", fresh);
  button.hidden = false;
  if (!entries().length) told(reload)();
}

// --- after every change of the list ------------------------------------------------------------------------------------

const nearEnd = list && new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && told(more)(), { root: list, rootMargin: "600px" });
let passed = [];
const sendPassed = told(async () => {
  const ids = passed.splice(0);
  if (!ids.length) return;
  const sent = post("/mark", { ids: ids.join(","), unread: "0" });
  underWay.set("passed", sent);
  await sent;
  counts();
});
const scrolledPast = list && document.body.dataset.markOnScroll && new IntersectionObserver((seen) => {
  for (const { target, isIntersecting, boundingClientRect, rootBounds } of seen) {
    if (isIntersecting || !rootBounds || boundingClientRect.bottom > rootBounds.top || !target.classList.contains("unread")) continue;
    target.classList.remove("unread");
    passed.push(target.dataset.id);
    if (passed.length === 1) setTimeout(sendPassed, 800);
  }
}, { root: list, rootMargin: "-52px 0px 0px 0px" });

function settle() {
  if (list.querySelector(".bar")) fresh = list.querySelector("#fresh").hidden ? 0 : fresh;
  const end = list.querySelector(".more");
  nearEnd.disconnect();
  if (end) nearEnd.observe(end);
  if (scrolledPast) for (const row of entries()) if (row.classList.contains("unread")) scrolledPast.observe(row);
}

const plain = (event) => event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);

export function begin() {
  settle();
  const row = current();
  if (row?.classList.contains("unread")) told(mark)(row, "read", "1");
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (event.target.closest("#fresh")) told(reload)();
    if (event.target.closest(".next")) step(1);
    if (!link || !plain(event)) return;
    const entry = link.closest(".entry");
    if (entry) event.preventDefault(), told(openEntry)(entry);
    else if (link.matches(".whole")) event.preventDefault(), told(openWhole)(link);
    else if (link.matches(".back")) event.preventDefault(), toList();
    else if (link.matches("[data-view], [data-part]")) event.preventDefault(), told(openView)(link.getAttribute("href"));
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches(".mark-all")) event.preventDefault(), told(markAll)();
    else if (form.closest("article")) event.preventDefault(), told(fromArticle)(form, event.submitter);
    else if (form.matches("#list [role=search]")) event.preventDefault(), told(openView)("/search?" + new URLSearchParams(new FormData(form)));
  });
  addEventListener("popstate", () => {
    const url = new URL(location.href);
    const id = url.searchParams.get("entry");
    const same = url.pathname === "/" + view().view && (url.searchParams.get("q") || "") === (view().view === "search" ? view().search : "");
    if (url.hash) return; // the sidebar of narrow pages
    const shown = id && document.getElementById(`e${id}`);
    if (same && shown) told(openEntry)(shown, { push: false });
    else if (same && !id) closeArticle();
    else location.reload();
  });
}
