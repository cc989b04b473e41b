/* The data of a chart as a table and as CSV, made from its traces when asked for. */
const tables = (() => {
  const ROWS_SHOWN = 500;
  const CONTROL = /[\x00-\x1f\x7f]/g;
  const WRITTEN = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };
  const ENTITIES = { lt: "<", gt: ">", quot: '"', amp: "&" };

  /* Text as plotly shows it: its few tags are gone, what was escaped is text again. */
  function plain(value) {
    if (typeof value !== "string") return value;
    return value
      .replace(/<br\s*\/?>/g, "; ")
      .replace(/<\/?[a-z][^>]*>/g, "")
      .replace(/&(lt|gt|quot|amp);/g, (_, name) => ENTITIES[name])
      .replace(/\u200b/g, "")
      .trim();
  }

  function axisOf(figure, trace, letter) {
    return figure.layout[`${letter}axis${(trace[`${letter}axis`] || letter).slice(1)}`] || {};
  }

  function titleOf(figure, trace, letter) {
    const { title } = axisOf(figure, trace, letter);
    return plain((title && title.text) || title || "") || figure.columns[letter] || letter;
  }

  /* Places on an axis by the names that stand there. */
  function named(values, axis) {
    if (!axis.ticktext || !axis.tickvals) return values;
    const names = new Map(axis.tickvals.map((value, place) => [value, axis.ticktext[place]]));
    return values.map((value) => (names.has(value) ? names.get(value) : value));
  }

  function placesOf(figure, trace, letter) {
    const values = trace[letter];
    const title = titleOf(figure, trace, letter);
    if (!Array.isArray(values)) return [];
    if (Array.isArray(values[0])) {
      const levels = values.length;
      return values.map((level, place) => [place === levels - 1 ? title : `${title}, group`, level]);
    }
    const isLength = trace.type === "bar" && trace.base && letter === (trace.orientation === "h" ? "x" : "y");
    if (!isLength) return [[title, named(values, axisOf(figure, trace, letter))]];
    const bases = Array.isArray(trace.base) ? trace.base : values.map(() => trace.base);
    const { base = `${title}, from`, length = `${title}, length` } = figure.columns;
    return [[base, bases], [length, values]];
  }

  function bordersOf(figure, trace, letter) {
    const error = trace[`error_${letter}`];
    if (!error || !error.array) return [];
    const title = titleOf(figure, trace, letter);
    const moved = (by, sign) =>
      trace[letter].map((value, row) =>
        typeof value === "number" && typeof by[row] === "number" ? Number((value + sign * by[row]).toPrecision(12)) : null,
      );
    return [
      [`${title}, interval from`, moved(error.arrayminus || error.array, -1)],
      [`${title}, interval to`, moved(error.array, 1)],
    ];
  }

  function detailsOf(figure, trace) {
    const found = [];
    for (const key of ["text", "hovertext"]) {
      if (Array.isArray(trace[key])) found.push([figure.columns.text || "detail", trace[key]]);
    }
    const data = trace.customdata;
    if (!Array.isArray(data)) return found;
    const width = Math.max(1, ...data.map((one) => (Array.isArray(one) ? one.length : 1)));
    for (let place = 0; place < width; place += 1) {
      const title = figure.columns[`customdata[${place}]`] || `value ${place + 1}`;
      found.push([title, data.map((one) => (Array.isArray(one) ? one[place] : one))]);
    }
    return found;
  }

  /* Titles of columns with the values of a trace. */
  function columnsOf(figure, trace) {
    const letters = trace.orientation === "h" ? ["y", "x"] : ["x", "y"];
    return [
      ...letters.flatMap((letter) => placesOf(figure, trace, letter)),
      ...letters.flatMap((letter) => bordersOf(figure, trace, letter)),
      ...detailsOf(figure, trace),
    ];
  }

  /* Labels within the drawing, and what is drawn a second time, are no data. */
  const isData = (trace) => trace.mode !== "text" && !(trace.meta && trace.meta.in_table === false);

  /* Columns and rows of all traces, one below the other. */
  function dataOf({ columns = {}, ...rest }) {
    const figure = { columns, ...rest };
    const parts = figure.traces.filter(isData).map((trace) => ({ trace, columns: columnsOf(figure, trace) }));
    const titles = [...new Set(parts.flatMap((part) => part.columns.map(([title]) => title)))];
    const rows = [];
    for (const part of parts) {
      const values = new Map(part.columns);
      const series = plain(part.trace.name || "");
      const count = Math.max(0, ...part.columns.map((column) => column[1].length));
      for (let row = 0; row < count; row += 1) {
        const cells = titles.map((title) => plain((values.get(title) || [])[row] ?? null));
        if (cells.some((cell) => cell !== null)) rows.push([series, ...cells]);
      }
    }
    const isNamed = rows.some(([series]) => series !== "");
    if (!isNamed) return { titles, rows: rows.map((row) => row.slice(1)) };
    return { titles: [figure.columns.series || "series", ...titles], rows };
  }

  /* A text is one line and no formula, as in `aitrace export`. */
  function safe(cell) {
    if (cell === null) return "";
    if (typeof cell !== "string") return String(cell);
    const line = cell.replace(CONTROL, (char) => WRITTEN[char] || `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`);
    return /^[=+\-@]/.test(line) ? `'${line}` : line;
  }

  function csvOf({ titles, rows }) {
    const field = (cell) => (/[",]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    return [titles, ...rows].map((row) => `${row.map((cell) => field(safe(cell))).join(",")}\r\n`).join("");
  }

  function elementOf({ titles, rows }, name) {
    const table = document.createElement("table");
    table.createCaption().textContent =
      rows.length > ROWS_SHOWN
        ? `${name}: the first ${ROWS_SHOWN} rows; all ${rows.length.toLocaleString("en")} are in the CSV`
        : `${name}: ${rows.length.toLocaleString("en")} rows`;
    const head = table.createTHead().insertRow();
    const isNumber = titles.map((_, column) => rows.every((row) => typeof row[column] !== "string"));
    const cell = (row, tag, text, column) => {
      const made = row.appendChild(document.createElement(tag));
      made.textContent = text;
      made.classList.toggle("text", !isNumber[column]);
      if (tag === "th") made.scope = "col";
    };
    titles.forEach((title, column) => cell(head, "th", title, column));
    const body = table.createTBody();
    for (const values of rows.slice(0, ROWS_SHOWN)) {
      const row = body.insertRow();
      values.forEach((value, column) => cell(row, "td", value ?? "–", column));
    }
    return table;
  }

  function fileName(id) {
    const title = document.title.replace(/[^\w.-]+/g, "-").slice(0, 80);
    return `${title}-${id}.csv`;
  }

  /* A button that shows the table and a link to the CSV, both for one row of tools, and where the table goes. */
  function toolsOf(id, name, figure) {
    const place = document.createElement("div");
    place.id = `${id}-data`;
    place.className = "scroll data";
    place.tabIndex = 0;
    place.hidden = true;
    place.setAttribute("role", "region");
    place.setAttribute("aria-label", `${name}: data`);
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Table";
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-controls", place.id);
    button.setAttribute("aria-label", `Table of the data: ${name}`);
    button.addEventListener("click", () => {
      if (!place.firstChild) place.append(elementOf(dataOf(figure), name));
      place.hidden = !place.hidden;
      button.setAttribute("aria-expanded", String(!place.hidden));
    });
    const link = document.createElement("a");
    link.textContent = "CSV";
    link.href = `#${id}`;
    link.download = fileName(id);
    link.setAttribute("aria-label", `CSV of the data: ${name}`);
    link.addEventListener("click", () => {
      if (link.protocol === "blob:") return;
      link.href = URL.createObjectURL(new Blob([csvOf(dataOf(figure))], { type: "text/csv;charset=utf-8" }));
    });
    return { button, link, place };
  }

  return { toolsOf };
})();
