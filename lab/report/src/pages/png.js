// A figure as a picture: title, legend and drawing, light, at twice its size.
(() => {
  const NS = "http://www.w3.org/2000/svg";
  const EDGE = 20, SCALE = 2, KEY = 36;
  const made = (name, attributes, into, text) => {
    const e = document.createElementNS(NS, name);
    Object.entries(attributes).forEach(([key, value]) => e.setAttribute(key, value));
    if (text) e.textContent = text;
    into.append(e);
    return e;
  };
  const lines = (text, chars) => text.split(" ").reduce((all, word) => {
    const last = all[all.length - 1];
    if (last && last.length + 1 + word.length <= chars) all[all.length - 1] = last + " " + word;
    else all.push(word);
    return all;
  }, []);
  const drawing = figure => {
    const body = figure.querySelector(".wide svg").cloneNode(true);
    const width = +body.getAttribute("width"), height = +body.getAttribute("height");
    const all = document.createElementNS(NS, "svg");
    const style = document.getElementById("drawing").textContent;
    made("style", {}, all, style);
    made("rect", { width: "100%", height: "100%", class: "page" }, all);
    const head = made("g", { transform: `translate(${EDGE} 0)` }, all);
    let y = 12;
    lines(figure.querySelector("h3").textContent, 72).forEach(line => {
      made("text", { x: 0, y: y += 22, class: "title" }, head, line);
    });
    lines(figure.querySelector(".sub").textContent, 102).forEach(line => {
      made("text", { x: 0, y: y += 18, class: "subtitle" }, head, line);
    });
    let x = 0;
    y += 24;
    figure.querySelectorAll(".legend li").forEach(key => {
      // The sample has a title of its own.
      const label = key.lastChild.textContent;
      const room = KEY + 22 + 7 * label.length;
      if (x > 0 && x + room > width) { x = 0; y += 20; }
      const sample = key.querySelector("svg");
      const at = made("g", { transform: `translate(${x} ${y - 12})` }, head);
      [...sample.childNodes].forEach(child => at.append(child.cloneNode(true)));
      made("text", { x: x + KEY + 6, y, class: "key" }, head, label);
      x += room;
    });
    const at = made("g", { transform: `translate(${EDGE} ${y + 18})` }, all);
    [...body.childNodes].forEach(child => at.append(child));
    const size = { width: width + 2 * EDGE, height: height + y + 18 + EDGE };
    all.setAttribute("viewBox", `0 0 ${size.width} ${size.height}`);
    all.setAttribute("width", SCALE * size.width);
    all.setAttribute("height", SCALE * size.height);
    return { text: new XMLSerializer().serializeToString(all), width: SCALE * size.width, height: SCALE * size.height };
  };
  addEventListener("click", event => {
    const name = event.target.dataset && event.target.dataset.png;
    if (!name) return;
    const { text, width, height } = drawing(event.target.closest("figure"));
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      Object.assign(canvas, { width, height });
      canvas.getContext("2d").drawImage(image, 0, 0, width, height);
      const link = document.createElement("a");
      link.download = name + ".png";
      link.href = canvas.toDataURL("image/png");
      link.click();
    };
    image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  });
})();
