"use strict";
(() => {
  const font = getComputedStyle(document.body).fontFamily;
  const quiet = "var(--quiet)", line = "var(--line)", text = "var(--text)";
  // Colours are CSS variables, so that charts follow the page from light to dark and to paper.
  const config = {
    background: "transparent", font, padding: 2,
    view: { stroke: null },
    axis: {
      labelColor: quiet, titleColor: quiet, tickColor: line, domainColor: line, gridColor: line,
      labelFontSize: 12, titleFontSize: 12, titleFontWeight: 400, titlePadding: 8, labelLimit: 150,
      labelOverlap: "greedy", labelSeparation: 6, gridOpacity: 0.7,
    },
    axisX: { grid: false },
    text: { fill: text, fontSize: 12, font },
    rule: { stroke: line },
  };
  const embedding = {
    ast: true, actions: false, renderer: "svg", config, defaultStyle: false,
    tooltip: { disableDefaultStyle: true, theme: "page" },
  };

  const read = (holder) => JSON.parse(holder.querySelector("script[type='application/json']").textContent);

  async function draw(figure) {
    const { columns, rows, spec } = read(figure);
    const keys = Object.keys(columns);
    const values = rows.map((row) => Object.fromEntries(keys.map((key, place) => [key, row[place]])));
    const chart = figure.querySelector(".chart");
    try {
      const named = spec.$schema.includes("vega-lite")
        ? { ...spec, data: { values } }
        : { ...spec, data: [{ name: "rows", values }, ...spec.data] };
      const { view } = await vegaEmbed(chart.firstElementChild, named, embedding);
      figure.view = view;
      figure.dataset.drawn = "yes";
    } catch (error) {
      chart.innerHTML = "<p class='failed'>This chart could not be drawn; its data is below.</p>";
      console.error(error);
    }
  }

  function quoted(value) {
    const written = value === null || value === undefined ? "" : String(value);
    // A spreadsheet would take text that begins so for a formula.
    const plain = typeof value === "string" && /^[=+\-@\t\r]/.test(written) ? `'${written}` : written;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  }

  function download(figure, name) {
    const { columns, rows } = read(figure);
    const lines = [Object.values(columns), ...rows].map((row) => row.map(quoted).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
    link.download = `${name}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const MOST_ROWS = 500; // of a table under a chart; all are in the CSV file

  function listed(figure, place) {
    if (place.childElementCount) return;
    const { columns, rows } = read(figure);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const title of Object.values(columns)) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = title;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows.slice(0, MOST_ROWS)) {
      const added = body.insertRow();
      for (const value of row) {
        const cell = added.insertCell();
        cell.textContent = value ?? "";
        cell.className = typeof value === "number" ? "number" : "text";
      }
    }
    place.append(table);
    if (rows.length > MOST_ROWS) {
      const note = document.createElement("p");
      note.textContent = `The first ${MOST_ROWS} of ${rows.length} rows; all are in the CSV file.`;
      place.before(note);
    }
  }

  for (const details of document.querySelectorAll("figure details.data")) {
    const figure = details.closest("figure");
    details.addEventListener("toggle", () => listed(figure, details.querySelector(".scroll")));
    details.querySelector("button").addEventListener("click", () => download(figure, figure.id));
  }

  for (const legend of document.querySelectorAll(".legend")) {
    const figures = document.getElementById(legend.dataset.of).querySelectorAll("figure");
    legend.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
      const off = [...legend.querySelectorAll("[aria-pressed='false']")].map((b) => b.dataset.series);
      for (const figure of figures) figure.view?.signal("off", off).runAsync();
    });
  }

  for (const head of document.querySelectorAll("table.sorts th")) {
    head.querySelector("button").addEventListener("click", () => {
      const table = head.closest("table"), body = table.tBodies[0], column = head.cellIndex;
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const valued = [...body.rows].map((row) => {
        const cell = row.cells[column];
        const number = cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
        return { row, number, text: cell.textContent };
      });
      valued.sort((a, b) => {
        if (Number.isNaN(a.number) !== Number.isNaN(b.number)) return Number.isNaN(a.number) ? 1 : -1;
        const order = Number.isNaN(a.number)
          ? a.text.localeCompare(b.text, undefined, { numeric: true })
          : a.number - b.number;
        return up ? order : -order;
      });
      body.append(...valued.map(({ row }) => row));
    });
  }

  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });

  Promise.all([...document.querySelectorAll("figure.drawn-here")].map(draw)).then(() => {
    document.documentElement.dataset.ready = "yes";
  });
})();
