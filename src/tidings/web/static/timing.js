// The Timing page: loads the curve of delay against budget, and says what the chosen budget would do.
const form = document.getElementById("budget");
const curve = document.getElementById("curve");
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// As on the server: two figures, and a unit from one and a half of it upwards.
function duration(seconds) {
  const [name, size] = UNITS.find(([, size]) => seconds >= 1.5 * size) || UNITS[3];
  return `${Number((seconds / size).toPrecision(2))} ${name}`;
}

// As on the server: thousands are separated by commas.
const thousands = (number) => Math.round(number).toLocaleString("en");

// Between the points along a power law.
function between(points, which, perDay) {
  const i = Math.max(points.findIndex((point) => point[0] >= perDay), 1);
  const [low, high] = [points[i - 1], points[i]];
  const share = Math.log(perDay / low[0]) / Math.log(high[0] / low[0]);
  if (which === 3) return low[3] + share * (high[3] - low[3]);
  return Math.exp(Math.log(low[which]) + share * Math.log(high[which] / low[which]));
}

// What is simulated for a budget; nothing before the curve is there.
function simulated(perDay) {
  const found = document.getElementById("points");
  const points = found ? JSON.parse(found.dataset.points) : [];
  if (points.length < 2) return "";
  const [least, most] = [points[0][0], points.at(-1)[0]];
  if (perDay < least * 0.999 || perDay > most * 1.001) {
    return form.dataset.outside.replace("{least}", thousands(least)).replace("{most}", thousands(most));
  }
  const at = Math.min(Math.max(perDay, least), most);
  return form.dataset.promise
    .replace("{mean}", duration(between(points, 1, at)))
    .replace("{median}", duration(between(points, 2, at)))
    .replace("{missed}", `${(100 * between(points, 3, at)).toFixed(2)} %`);
}

const slider = document.getElementById("slider");
const field = document.getElementById("per-day");
const promise = document.getElementById("promise");
const spent = promise?.textContent;

function describe() {
  const perDay = Number(field.value);
  slider.setAttribute("aria-valuetext", thousands(perDay));
  const tooMuch = perDay > Number(form.dataset.useful || Infinity) && field.value !== field.defaultValue;
  const note = tooMuch ? form.dataset.tooMuch.replace("{budget}", thousands(perDay)) : "";
  promise.textContent = [simulated(perDay), note].filter(Boolean).join(" ") || spent;
}

function slide() {
  const [least, most] = [Number(slider.dataset.least), Number(slider.dataset.most)];
  const place = () => { slider.value = Math.log(Math.max(Number(field.value), least) / least) / Math.log(most / least); };
  slider.addEventListener("input", () => { field.value = Math.round(least * (most / least) ** Number(slider.value)); describe(); });
  field.addEventListener("input", () => { place(); describe(); });
  slider.hidden = false;
  place();
  describe();
}

async function load() {
  curve.setAttribute("aria-busy", "true");
  const answer = await fetch(curve.dataset.load);
  if (answer.ok) curve.innerHTML = await answer.text();
  curve.removeAttribute("aria-busy");
  describe();
}

if (form) slide();
if (curve?.dataset.load) load();
