// The page about time: the curve is asked for when the page is there, and with it the slider says what a budget would buy.
const form = document.getElementById("budget");
const curve = document.getElementById("curve");
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// As on the server: two figures, and a unit from one and a half of it upwards.
function duration(seconds) {
  const [name, size] = UNITS.find(([, size]) => seconds >= 1.5 * size) || UNITS[3];
  return `${Number((seconds / size).toPrecision(2))} ${name}`;
}

// Between the points along a power law.
function between(points, which, perDay) {
  const at = Math.min(Math.max(perDay, points[0][0]), points.at(-1)[0]);
  const i = Math.max(points.findIndex((point) => point[0] >= at), 1);
  const [low, high] = [points[i - 1], points[i]];
  const share = Math.log(at / low[0]) / Math.log(high[0] / low[0]);
  if (which === 3) return low[3] + share * (high[3] - low[3]);
  return Math.exp(Math.log(low[which]) + share * Math.log(high[which] / low[which]));
}

function slide() {
  const told = document.getElementById("points");
  if (!told) return;
  const points = JSON.parse(told.dataset.points);
  const [least, most] = [points[0][0], points.at(-1)[0]];
  const [slider, field] = [document.getElementById("slider"), document.getElementById("per-day")];
  const promise = () => {
    const perDay = Number(field.value) || least;
    slider.setAttribute("aria-valuetext", `${perDay}`);
    document.getElementById("promise").textContent = form.dataset.promise
      .replace("{mean}", duration(between(points, 1, perDay)))
      .replace("{half}", duration(between(points, 2, perDay)))
      .replace("{missed}", `${(100 * between(points, 3, perDay)).toFixed(2)} %`);
  };
  const place = () => { slider.value = Math.log(Math.max(Number(field.value), least) / least) / Math.log(most / least); };
  slider.addEventListener("input", () => { field.value = Math.round(least * (most / least) ** Number(slider.value)); promise(); });
  field.addEventListener("input", () => { place(); promise(); });
  slider.hidden = false;
  place();
  promise();
}

async function load() {
  curve.setAttribute("aria-busy", "true");
  const answer = await fetch(curve.dataset.load);
  if (answer.ok) curve.innerHTML = await answer.text();
  curve.removeAttribute("aria-busy");
  slide();
}

if (curve?.dataset.load) load();
else if (curve) slide();
