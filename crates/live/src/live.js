"use strict";
// Fetches the figures once a second until the run has ended; less often while nobody looks.
const live = document.getElementById("live");
const lost = document.getElementById("lost");
let failures = 0;

async function update() {
  try {
    const answer = await fetch("figures", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    live.innerHTML = await answer.text();
    live.dataset.updates = Number(live.dataset.updates) + 1;
    failures = 0;
  } catch {
    failures += 1;
  }
  const ended = document.getElementById("ended") !== null;
  lost.hidden = ended || failures < 3;
  if (!ended) setTimeout(update, document.hidden ? 10000 : 1000);
}

setTimeout(update, 1000);
