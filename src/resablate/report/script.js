
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const aside = document.getElementById("lineage");
  const body = document.getElementById("lineage-body");
  let opener = null;

  // Text only ever becomes text nodes: nothing in the data can turn into markup.
  const make = (tag, ...children) => {
    const element = document.createElement(tag);
    element.append(...children.map((child) => child ?? ""));
    return element;
  };
  const list = (pairs) => {
    const dl = make("dl");
    for (const [name, value] of pairs) {
      if (value !== undefined && value !== null && value !== "") {
        dl.append(make("dt", name), make("dd", String(value)));
      }
    }
    return dl;
  };
  const seeds = (cell) => [...new Set(cell.runs.map((i) => data.runs[i].seed))].join(", ");
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

  const files = (title, indices) => {
    if (!indices.length) return "";
    const items = indices.map((i) => {
      const [path, md5] = data.files[i];
      return make("li", make("code", path), " ", make("code", md5 ?? ""));
    });
    return make("details", make("summary", `${title}: ${count(items.length, "file")}, md5`), make("ul", ...items));
  };
  const stage = ([name, parameters, code, inputs, outs]) => {
    const made = make("details", make("summary", make("code", name)));
    made.append(make("p", "Run it again: ", make("code", `dvc repro -f -s ${name}`)));
    const values = data.parameters[parameters];
    if (values && Object.keys(values).length) {
      const text = JSON.stringify(values, null, 1);
      const shown = make("details", make("summary", "parameters"), make("pre", make("code", text)));
      made.append(shown);
    }
    made.append(files("code", code), files("data", inputs), files("outs", outs));
    return made;
  };
  const runsTable = (cell) => {
    const runs = cell.runs.map((i) => data.runs[i]);
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.values ?? {})))];
    const head = make("tr");
    for (const name of ["run", "seed", "status", ...names]) {
      const th = make("th", name.replaceAll("_", " "));
      th.scope = "col";
      head.append(th);
    }
    const rows = runs.map((run) => {
      const th = make("th", make("code", run.stage));
      th.scope = "row";
      const values = [run.seed, run.status, ...names.map((name) => run.values?.[name])];
      return make("tr", th, ...values.map((value) => make("td", String(value ?? "—"))));
    });
    return make("table", make("caption", "Runs behind it"), make("thead", head), make("tbody", ...rows));
  };

  const show = (id, from) => {
    const cell = data.cells[id];
    if (!cell) return;
    const printed = document.getElementById(id)?.textContent ?? "";
    document.getElementById("lineage-head").replaceChildren(make("code", id));
    const parts = [
      list([
        ["printed", printed],
        ["value", cell.value],
        ["std", cell.std],
        ["interval", cell.lo === undefined ? "" : `${cell.lo} to ${cell.hi}`],
        ["n", cell.n],
        ["unit", cell.unit],
        ["formula", data.texts[cell.formula]],
        ["rounding", data.texts[cell.rounding]],
        ["file", cell.file],
      ]),
    ];
    if (cell.runs.length) {
      const note = cell.exact ? [] : [make("p", "These are all runs that the stage reads; the number may rest on fewer.")];
      const wide = make("div", runsTable(cell));
      wide.className = "scroll";
      parts.push(...note, wide);
    }
    parts.push(make("h3", "Made by"), stage(data.stages[cell.producer]));
    if (cell.stages.length) parts.push(make("h3", "From"), ...cell.stages.map((i) => stage(data.stages[i])));
    for (const i of cell.sources) {
      const source = data.sources[i];
      parts.push(make("h3", "Source"), list([["corpus", source.corpus], ["sha256", source.sha256], ["record", source.document]]));
    }
    parts.push(make("p", "Check every link in your clone: ", make("code", `python -m resablate trace ${id}`)));
    body.replaceChildren(...parts);
    aside.hidden = false;
    aside.scrollTop = 0;
    opener = from ?? opener;
    tip.hidden = true;
    aside.focus({ preventScroll: true });
  };
  const close = () => {
    if (aside.hidden) return;
    aside.hidden = true;
    opener?.focus({ preventScroll: true });
  };
  document.getElementById("close").addEventListener("click", close);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      tip.hidden = true;
      close();
    }
  });

  const place = (x, y) => {
    const width = tip.offsetWidth, height = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 4))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? y - height - 8 : y + 18}px`;
  };
  const summary = (id) => {
    const cell = data.cells[id];
    const runs = cell.runs.length ? `${count(cell.runs.length, "run")}, seeds ${seeds(cell)}. ` : "";
    const value = cell.value === undefined ? "" : `${cell.value} ${cell.unit ?? ""}. `;
    return `${id}: ${value}${runs}${data.texts[cell.formula] ?? ""}`;
  };
  for (const link of document.querySelectorAll("a[data-cell]")) {
    const id = link.dataset.cell;
    const hint = (x, y) => {
      tip.textContent = summary(id);
      tip.hidden = false;
      place(x, y);
    };
    link.setAttribute("aria-haspopup", "dialog");
    link.addEventListener("pointerenter", (event) => event.pointerType !== "touch" && hint(event.clientX, event.clientY));
    link.addEventListener("pointerleave", () => { tip.hidden = true; });
    link.addEventListener("focus", () => {
      if (!link.matches(":focus-visible")) return;
      const box = link.getBoundingClientRect();
      hint(box.left, box.bottom - 12);
    });
    link.addEventListener("blur", () => { tip.hidden = true; });
    link.addEventListener("click", () => show(id, link));
  }

  // One number a table is in the tab order; arrow keys reach the others.
  for (const table of document.querySelectorAll("table")) {
    const links = [...table.querySelectorAll("a[data-cell]")];
    links.forEach((link, i) => { link.tabIndex = i ? -1 : 0; });
    table.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      const from = event.target.closest("td");
      if (!step || !from) return;
      event.preventDefault();
      let row = from.parentElement.rowIndex, column = from.cellIndex, next = null;
      while (!next) {
        row += step[0];
        column += step[1];
        const cell = table.rows[row]?.cells[column];
        if (!cell) return;
        next = cell.querySelector("a[data-cell]");
      }
      links.forEach((link) => { link.tabIndex = link === next ? 0 : -1; });
      next.focus();
    });
  }

  for (const svg of document.querySelectorAll(".panel svg")) {
    const output = svg.parentElement.querySelector("output");
    const marker = svg.querySelector(".marker");
    const lines = [...svg.querySelectorAll("polyline.run")].map((line) => ({
      line,
      points: line.getAttribute("points").split(" ").filter(Boolean).map((pair) => pair.split(",").map(Number)),
      steps: line.dataset.steps.split(" "),
      values: line.dataset.values.split(" "),
    })).filter((of) => of.points.length);
    let at = null;
    const pick = (run, point) => {
      at = [run, point];
      const of = lines[run];
      lines.forEach((other) => other.line.classList.toggle("on", other === of));
      svg.classList.add("picked");
      const [x, y] = of.points[point];
      marker.setAttribute("cx", x);
      marker.setAttribute("cy", y);
      output.textContent = `${of.line.dataset.label}: ${of.values[point]} at update ${of.steps[point]}`;
    };
    const clear = () => {
      at = null;
      svg.classList.remove("picked");
      lines.forEach((of) => of.line.classList.remove("on"));
      marker.setAttribute("cx", -9);
      output.textContent = "\u00a0";
    };
    const distance = ([x1, y1], [x2, y2], x, y) => {
      const [dx, dy] = [x2 - x1, y2 - y1];
      const t = Math.max(0, Math.min(1, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy || 1)));
      return Math.hypot(x - x1 - t * dx, y - y1 - t * dy);
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      let best = [Infinity, 0];
      lines.forEach(({ points }, run) => {
        for (let i = 1; i < points.length; i += 1) {
          const far = distance(points[i - 1], points[i], x, y);
          if (far < best[0]) best = [far, run];
        }
      });
      if (best[0] > 30) return clear();
      const points = lines[best[1]].points;
      const point = points.reduce((near, [px], i) => (Math.abs(px - x) < Math.abs(points[near][0] - x) ? i : near), 0);
      pick(best[1], point);
    });
    svg.addEventListener("pointerleave", clear);
    svg.addEventListener("blur", clear);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (event.key === "Escape") clear();
      if (!step || !lines.length) return;
      event.preventDefault();
      if (!at) return pick(0, lines[0].points.length - 1);
      const run = (at[0] + step[0] + lines.length) % lines.length;
      const last = lines[run].points.length - 1;
      pick(run, Math.max(0, Math.min(last, at[1] + step[1])));
    });
  }

  const follow = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const link = document.getElementById(id)?.querySelector("a[data-cell]");
    if (link) show(id, link);
  };
  addEventListener("hashchange", follow);
  addEventListener("load", () => setTimeout(follow)); // after the browser has gone to the cell
})();
