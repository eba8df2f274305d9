// Every second the figures are fetched anew, unless somebody is on a link in them, or the demo has ended.
const now = document.querySelector("#now");
const timer = setInterval(async () => {
  if (document.hidden || now.contains(document.activeElement)) return;
  try {
    const answer = await fetch("/demo/now");
    if (answer.ok) now.innerHTML = await answer.text();
  } catch {
    clearInterval(timer);
    document.querySelector("#ended").hidden = false;
  }
}, 1000);
