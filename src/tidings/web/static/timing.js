// Timing page: loads the budget curve and shows the simulated delay of the chosen budget.
const form = document.getElementById("budget");
const curve = document.getElementById("curve");
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// Same format as on the server: two significant digits; a unit is used from 1.5 of it.
function duration(seconds) {
  const [name, size] = UNITS.find(([, size]) => seconds >= 1.5 * size) || UNITS[3];
  return `${Number((seconds / size).toPrecision(2))} ${name}`;
}

// Same format as on the server: thousands separated by commas.
const thousands = (number) => Math.round(number).toLocaleString("en");

// Interpolate column `which` at a budget: delays along a power law, the missed share (3) linearly.
function interpolate(points, which, perDay) {
  const i = Math.max(points.findIndex((point) => point[0] >= perDay), 1);
  const [low, high] = [points[i - 1], points[i]];
  const share = Math.log(perDay / low[0]) / Math.log(high[0] / low[0]);
  if (which === 3) return low[3] + share * (high[3] - low[3]);
  return Math.exp(Math.log(low[which]) + share * Math.log(high[which] / low[which]));
}

// Text of the forecast for a budget; empty until the curve is loaded.
function simulated(perDay) {
  const element = document.getElementById("points");
  const points = element ? JSON.parse(element.dataset.points) : [];
  if (points.length < 2) return "";
  const [least, most] = [points[0][0], points.at(-1)[0]];
  if (perDay < least * 0.999 || perDay > most * 1.001) {
    return form.dataset.outside.replace("{least}", thousands(least)).replace("{most}", thousands(most));
  }
  const budget = Math.min(Math.max(perDay, least), most);
  return form.dataset.forecast
    .replace("{mean}", duration(interpolate(points, 1, budget)))
    .replace("{median}", duration(interpolate(points, 2, budget)))
    .replace("{missed}", `${(100 * interpolate(points, 3, budget)).toFixed(2)} %`);
}

const slider = document.getElementById("slider");
const field = document.getElementById("per-day");
const forecastText = document.getElementById("budget-forecast");
const initialText = forecastText?.textContent;

function showForecast() {
  const perDay = Number(field.value);
  slider.setAttribute("aria-valuetext", thousands(perDay));
  const tooMuch = perDay > Number(form.dataset.useful || Infinity) && field.value !== field.defaultValue;
  const warning = tooMuch ? form.dataset.tooMuch.replace("{budget}", thousands(perDay)) : "";
  forecastText.textContent = [simulated(perDay), warning].filter(Boolean).join(" ") || initialText;
}

function setUpSlider() {
  const [min, max] = [Number(slider.dataset.min), Number(slider.dataset.max)];
  const moveSlider = () => { slider.value = Math.log(Math.max(Number(field.value), min) / min) / Math.log(max / min); };
  slider.addEventListener("input", () => { field.value = Math.round(min * (max / min) ** Number(slider.value)); showForecast(); });
  field.addEventListener("input", () => { moveSlider(); showForecast(); });
  slider.hidden = false;
  moveSlider();
  showForecast();
}

async function loadCurve() {
  curve.setAttribute("aria-busy", "true");
  const response = await fetch(curve.dataset.load);
  if (response.ok) curve.innerHTML = await response.text();
  curve.removeAttribute("aria-busy");
  showForecast();
}

if (form) setUpSlider();
if (curve?.dataset.load) loadCurve();
