// Reader with three panes: requests only the pane that changes. Without this file, links and forms
// do the same with full page loads.
import { fetchPart, getJson, post, reportErrors, showToast } from "./api.js";

const list = document.getElementById("list");
const main = document.getElementById("main");
const emptyPane = main && !main.querySelector("article") ? main.innerHTML : "";
export const isReaderPage = () => Boolean(list);

// --- views and entries -----------------------------------------------------------------------------

export const entries = () => [...list.querySelectorAll(".entry")];
export const current = () => list?.querySelector(".entry a[aria-current]")?.closest(".entry");
const view = () => list?.querySelector(".bar").dataset;
const withEntry = (href, id) => {
  const url = new URL(href, location.href);
  id ? url.searchParams.set("entry", id) : url.searchParams.delete("entry");
  url.hash = "";
  return url.pathname + url.search;
};

let lastViewRequest = 0;
export async function openView(href, push = true) {
  const request = ++lastViewRequest;
  await pendingSaves();
  const html = await fetchPart(withEntry(href), "list");
  if (request !== lastViewRequest) return; // another view was opened meanwhile
  list.innerHTML = html;
  list.scrollTop = 0;
  if (push) {
    closeArticle();
    history.pushState({}, "", withEntry(href));
  }
  const article = main.querySelector("article");
  if (article) document.querySelector(`#e${article.dataset.id} a`)?.setAttribute("aria-current", "true");
  else document.title = `${view().search || list.querySelector("h1").textContent} – tidings`;
  highlightCurrentView();
  observeList();
  scheduleRecount();
  if (!push) return;
  const field = list.querySelector("input[type=search]");
  field && !field.value ? field.focus() : list.focus();
}

// Mark the current view in the sidebar.
export function highlightCurrentView() {
  for (const link of document.querySelectorAll("#sidebar [data-view]")) {
    link.dataset.view === view()?.view ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
}

// Reload the list; the open article stays.
export const reload = () => openView(location.pathname + location.search, false);

function closeArticle() {
  document.body.classList.remove("entry-open");
  current()?.querySelector("a").removeAttribute("aria-current");
  main.innerHTML = emptyPane;
}

export async function openEntry(row, { push = true } = {}) {
  current()?.querySelector("a").removeAttribute("aria-current");
  const link = row.querySelector("a");
  link.setAttribute("aria-current", "true");
  row.scrollIntoView({ block: "nearest" });
  const html = await fetchPart(`/entry/${row.dataset.id}`, "article");
  if (current() !== row) return; // another entry was opened meanwhile
  main.innerHTML = html;
  main.scrollTop = 0;
  const wasOpen = document.body.classList.contains("entry-open");
  document.body.classList.add("entry-open");
  if (push) history[wasOpen ? "replaceState" : "pushState"]({}, "", link.getAttribute("href"));
  document.title = `${main.querySelector("h1").textContent} – tidings`;
  main.focus({ preventScroll: true });
  if (row.classList.contains("unread")) await setEntryState(row, "read", "1");
  if (entries().indexOf(row) > entries().length - 8) loadMore();
}

async function openFullText(link) {
  link.textContent = link.dataset.busy;
  const html = await fetchPart(`/entry/${link.closest("article").dataset.id}?full_text=1`, "article");
  if (link.isConnected) main.innerHTML = html;
}

export function closeEntry() {
  const row = current();
  if (!document.body.classList.contains("entry-open")) return;
  closeArticle();
  history.pushState({}, "", withEntry(location.href));
  row?.querySelector("a").focus();
}

// --- navigation ------------------------------------------------------------------------------------

// Open the next (by = 1) or previous (by = -1) entry that matches.
export function stepEntry(by, matches = () => true) {
  const rows = entries();
  let i = rows.indexOf(current());
  if (i < 0 && by < 0) i = rows.length;
  for (i += by; i >= 0 && i < rows.length; i += by) if (matches(rows[i])) return reportErrors(openEntry)(rows[i]);
  if (by > 0) loadMore();
}

// Scroll the article by a page; at its end, open the next unread entry.
export function scrollOrNextUnread() {
  const atEnd = main.scrollTop + main.clientHeight >= main.scrollHeight - 4;
  if (atEnd || !document.body.classList.contains("entry-open")) stepEntry(1, (row) => row.classList.contains("unread"));
  else main.scrollBy({ top: 0.9 * main.clientHeight });
}

export function stepFeed(by) {
  const links = [...document.querySelectorAll("#sidebar [data-view]")].filter((link) => link.checkVisibility());
  const i = links.findIndex((link) => link.hasAttribute("aria-current"));
  const next = links[i + by];
  if (next) reportErrors(openView)(next.getAttribute("href"));
}

let loading = false;
async function loadMore() {
  const link = list.querySelector(".more a");
  if (!link || loading) return;
  loading = true;
  try {
    const html = await fetchPart(link.getAttribute("href"), "list");
    if (!link.isConnected) return;
    const fragment = document.createElement("template");
    fragment.innerHTML = html;
    list.querySelector(".entries").append(...fragment.content.querySelectorAll(".entry"));
    const next = fragment.content.querySelector(".more");
    next ? link.closest(".more").replaceWith(next) : link.closest(".more").remove();
    observeList();
  } finally {
    loading = false;
  }
}

// --- entry state -----------------------------------------------------------------------------------

function showEntryState(state) {
  const row = document.getElementById(`e${state.id}`);
  row?.classList.toggle("unread", state.unread);
  row?.classList.toggle("starred", state.starred);
  if (!state.unread) row?.querySelector(".status")?.remove();
  const article = main.querySelector(`article[data-id="${state.id}"]`);
  if (!article) return;
  for (const [name, on, value] of [["star", state.starred, state.starred ? "0" : "1"], ["read", state.unread, state.unread ? "1" : "0"]]) {
    const button = article.querySelector(`[data-action=${name}]`);
    button.setAttribute("aria-pressed", on);
    button.value = value;
  }
}

// Changes are shown at once and sent in order, one request at a time per entry. The page then shows
// the state that the last response contains.
const pendingRequests = new Map();
// Lists are loaded only after all changes are saved; otherwise they would show the old state.
const pendingSaves = () => Promise.allSettled([sendScrolledPast(), ...pendingRequests.values()]);
export async function setEntryState(row, name, value) {
  if (name === "read") row.classList.toggle("unread", value === "0");
  if (name === "star") row.classList.toggle("starred", value === "1");
  const id = row.dataset.id;
  const previous = Promise.resolve(pendingRequests.get(id)).catch(() => {});
  const request = previous.then(() => post(`/entry/${id}`, { [name]: value }));
  pendingRequests.set(id, request);
  try {
    const state = await request;
    if (pendingRequests.get(id) === request) showEntryState(state);
  } finally {
    if (pendingRequests.get(id) === request) pendingRequests.delete(id);
  }
  scheduleRecount();
}

export const toggle = (name, className) => {
  const row = current();
  if (row) reportErrors(setEntryState)(row, name, row.classList.contains(className) === (name === "read") ? "1" : "0");
};

async function submitArticleForm(form, button) {
  const id = main.querySelector("article").dataset.id;
  const fields = button?.name ? { [button.name]: button.value } : Object.fromEntries(new FormData(form));
  const state = await post(form.getAttribute("action"), fields);
  if (!["star", "read"].includes(button?.name)) {
    main.innerHTML = await fetchPart(`/entry/${id}`, "article"); // shows the new tags and rating
    main.querySelector(".menu summary")?.focus();
    if (button?.name !== "rating") document.dispatchEvent(new Event("sidebar-changed"));
  }
  showEntryState(state);
  scheduleRecount();
}

export async function markAll() {
  const { view: name, search, until } = view();
  await pendingSaves();
  const result = await post("/mark-all", { view: name, q: search, until });
  await reload();
  scheduleRecount();
  const undo = async () => { await post("/undo", {}); await reload(); scheduleRecount(); };
  showToast(result.text, result.ids ? { label: document.body.dataset.undo, act: reportErrors(undo) } : {});
}

// --- unread counts ---------------------------------------------------------------------------------

async function updateCounts() {
  const counts = await getJson("/counts");
  const countOf = (name) => {
    const [kind, ...rest] = name.split("/");
    return ["unread", "starred"].includes(kind) ? counts[kind] : counts[`${kind}s`]?.[rest.join("/")];
  };
  for (const element of document.querySelectorAll("[data-count]")) {
    const number = countOf(element.dataset.count);
    element.textContent = number ? number.toLocaleString("en") : "";
  }
  if ("setAppBadge" in navigator) counts.unread ? navigator.setAppBadge(counts.unread) : navigator.clearAppBadge();
  return countOf;
}

let recountTimer = 0;
export function scheduleRecount() {
  clearTimeout(recountTimer);
  recountTimer = setTimeout(reportErrors(updateCounts), 150);
}

// The event stream is connected: load what arrived after the page was rendered.
export const onConnected = reportErrors(async () => {
  const countOf = await updateCounts();
  if (list && !entries().length && countOf(view().view)) await reload();
});

// --- new entries -----------------------------------------------------------------------------------

let newCount = 0;
const isInCurrentView = (feed) => {
  const name = view().view;
  if (["unread", "all"].includes(name) || name === `feed/${feed}`) return true;
  const link = document.querySelector(`#sidebar [data-view="feed/${feed}"]`);
  return name.startsWith("folder/") && link?.closest("details")?.dataset.folder === name.slice(7);
};

export function onNewEntries(feed, number) {
  scheduleRecount();
  if (!list || !isInCurrentView(feed)) return;
  newCount += number;
  const button = list.querySelector("#new-entries");
  button.textContent = button.dataset.text.replace("#", newCount);
  button.hidden = false;
  if (!entries().length) reportErrors(reload)();
}

// --- scrolling: load more, mark as read -------------------------------------------------------------

const nearEnd = list && new IntersectionObserver((changes) => changes.some((change) => change.isIntersecting) && reportErrors(loadMore)(), { root: list, rootMargin: "600px" });
let scrolledPastIds = [];
const sendScrolledPast = reportErrors(async () => {
  const ids = scrolledPastIds.splice(0);
  if (!ids.length) return;
  const request = post("/mark", { ids: ids.join(","), unread: "0" });
  pendingRequests.set("scrolled-past", request);
  await request;
  scheduleRecount();
});
const scrolledPast = list && document.body.dataset.markOnScroll && new IntersectionObserver((changes) => {
  for (const { target, isIntersecting, boundingClientRect, rootBounds } of changes) {
    if (isIntersecting || !rootBounds || boundingClientRect.bottom > rootBounds.top || !target.classList.contains("unread")) continue;
    target.classList.remove("unread");
    scrolledPastIds.push(target.dataset.id);
    if (scrolledPastIds.length === 1) setTimeout(sendScrolledPast, 800);
  }
}, { root: list, rootMargin: "-52px 0px 0px 0px" });

function observeList() {
  if (list.querySelector(".bar")) newCount = list.querySelector("#new-entries").hidden ? 0 : newCount;
  const end = list.querySelector(".more");
  nearEnd.disconnect();
  if (end) nearEnd.observe(end);
  if (scrolledPast) for (const row of entries()) if (row.classList.contains("unread")) scrolledPast.observe(row);
}

const isPlainClick = (event) => event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);

export function start() {
  observeList();
  const row = current();
  if (row?.classList.contains("unread")) reportErrors(setEntryState)(row, "read", "1");
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (event.target.closest("#new-entries")) reportErrors(reload)();
    if (event.target.closest(".next")) stepEntry(1);
    if (!link || !isPlainClick(event)) return;
    const entry = link.closest(".entry");
    if (entry) event.preventDefault(), reportErrors(openEntry)(entry);
    else if (link.matches(".full-text-link")) event.preventDefault(), reportErrors(openFullText)(link);
    else if (link.matches(".back")) event.preventDefault(), closeEntry();
    else if (link.matches("[data-view], [data-part]")) event.preventDefault(), reportErrors(openView)(link.getAttribute("href"));
  });
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches(".mark-all")) event.preventDefault(), reportErrors(markAll)();
    else if (form.closest("article")) event.preventDefault(), reportErrors(submitArticleForm)(form, event.submitter);
    else if (form.matches("#list [role=search]")) event.preventDefault(), reportErrors(openView)("/search?" + new URLSearchParams(new FormData(form)));
  });
  addEventListener("popstate", () => {
    const url = new URL(location.href);
    const id = url.searchParams.get("entry");
    const sameView = url.pathname === "/" + view().view && (url.searchParams.get("q") || "") === (view().view === "search" ? view().search : "");
    if (url.hash) return; // opens or closes the sidebar of narrow pages
    const row = id && document.getElementById(`e${id}`);
    if (sameView && row) reportErrors(openEntry)(row, { push: false });
    else if (sameView && !id) closeArticle();
    else location.reload();
  });
}
