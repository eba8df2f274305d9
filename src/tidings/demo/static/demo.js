// Reload the figures every second, unless a link in them has the focus or the demo has ended.
const now = document.querySelector("#now");
const timer = setInterval(async () => {
  if (document.hidden || now.contains(document.activeElement)) return;
  try {
    const response = await fetch("/demo/now");
    if (response.ok) now.innerHTML = await response.text();
  } catch {
    clearInterval(timer);
    document.querySelector("#ended").hidden = false;
  }
}, 1000);
