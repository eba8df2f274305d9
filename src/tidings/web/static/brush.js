// The line of time: what is drawn over with the mouse is shown larger. Links beside it lead back.
const frame = document.querySelector(".timeline .wide");
const line = frame.querySelector("svg");
const [left, right] = [8, 752]; // where the line begins and ends, as charts.py draws it
const band = document.createElementNS(line.namespaceURI, "rect");
let begun = null;

const place = (event) => {
  const { x } = new DOMPoint(event.clientX, event.clientY).matrixTransform(line.getScreenCTM().inverse());
  return Math.min(Math.max(x, left), right);
};
const moment = (x) => {
  const [from, until] = [Number(frame.dataset.from), Number(frame.dataset.until)];
  return Math.round(from + ((until - from) * (x - left)) / (right - left));
};

line.addEventListener("pointerdown", (event) => {
  if (event.pointerType === "touch" || event.button) return; // a finger scrolls
  event.preventDefault();
  line.setPointerCapture(event.pointerId);
  begun = place(event);
});
line.addEventListener("pointermove", (event) => {
  if (begun === null) return;
  const here = place(event);
  const drawn = { class: "band", x: Math.min(begun, here), y: 8, width: Math.abs(here - begun), height: 80 };
  for (const [name, value] of Object.entries(drawn)) band.setAttribute(name, value);
  line.prepend(band);
});
line.addEventListener("pointerup", (event) => {
  if (begun === null) return;
  const [low, high] = [begun, place(event)].sort((a, b) => a - b);
  begun = null;
  band.remove();
  if (high - low > 6) location.search = new URLSearchParams({ from: moment(low), until: moment(high) });
});
