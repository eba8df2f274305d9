// Zoom of the feed page's timeline: dragging with the mouse selects a range. Links lead back.
const frame = document.querySelector(".timeline .wide");
const chart = frame.querySelector("svg");
const [left, right] = [8, 752]; // ends of the time axis, as drawn by charts.py
const selection = document.createElementNS(chart.namespaceURI, "rect");
let dragStart = null;

const pointerX = (event) => {
  const { x } = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
  return Math.min(Math.max(x, left), right);
};
const timeAt = (x) => {
  const [from, until] = [Number(frame.dataset.from), Number(frame.dataset.until)];
  return Math.round(from + ((until - from) * (x - left)) / (right - left));
};

chart.addEventListener("pointerdown", (event) => {
  if (event.pointerType === "touch" || event.button) return; // touch scrolls
  event.preventDefault();
  chart.setPointerCapture(event.pointerId);
  dragStart = pointerX(event);
});
chart.addEventListener("pointermove", (event) => {
  if (dragStart === null) return;
  const x = pointerX(event);
  const attributes = { class: "band", x: Math.min(dragStart, x), y: 8, width: Math.abs(x - dragStart), height: 80 };
  for (const [name, value] of Object.entries(attributes)) selection.setAttribute(name, value);
  chart.prepend(selection);
});
chart.addEventListener("pointerup", (event) => {
  if (dragStart === null) return;
  const [low, high] = [dragStart, pointerX(event)].sort((a, b) => a - b);
  dragStart = null;
  selection.remove();
  if (high - low > 6) location.search = new URLSearchParams({ from: timeAt(low), until: timeAt(high) });
});
