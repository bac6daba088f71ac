// What a link names may be folded away: it is opened, and so is all around it.
(() => {
  const open = hash => {
    const named = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
    if (!named) return;
    const around = [];
    for (let e = named; e; e = e.parentElement) if (e.tagName === "DETAILS" && !e.open) around.push(e);
    around.forEach(e => { e.open = true; });
    if (around.length) named.scrollIntoView();
  };
  addEventListener("hashchange", () => open(location.hash));
  addEventListener("click", event => {
    const link = event.target.closest("a");
    const to = link && link.getAttribute("href");
    // A second click on the same link changes no hash.
    if (to && to === location.hash) open(to);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(e => { e.open = true; }));
  open(location.hash);
})();
