/* Draws the charts when they are scrolled near, all of them before printing, in the colours of the scheme. */
(() => {
  const root = document.documentElement;
  const say = (text) => {
    const place = document.getElementById("no-charts");
    place.hidden = false;
    place.textContent = text;
  };
  const fail = (text) => {
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
    say(text);
  };
  window.addEventListener("error", (event) => fail(`A chart could not be drawn: ${event.message}`));
  window.addEventListener("unhandledrejection", (event) => fail(`A chart could not be drawn: ${event.reason}`));

  const PRINT_WIDTH_PX = 680;
  const PRINT_HEIGHT_PX = 840;
  const NEAR = "500px 0px";
  const LETTER_PX = 6.5;
  const LEGEND_PX = 45;
  const narrow = window.matchMedia("(max-width: 700px)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)");
  const SYMBOLS = ["circle", "diamond", "square", "triangle-up", "cross", "star"];
  const PATTERNS = { "@usergap": "/", "@othergap": ".", "@backoff": "x" };
  const colourKeys = new Set([
    "color", "fillcolor", "bgcolor", "fgcolor", "bordercolor", "gridcolor", "linecolor", "zerolinecolor",
  ]);
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const places = [...document.querySelectorAll(".plot")].filter((place) => figures[place.id]);
  const heights = new Map(places.map((place) => [place, place.style.height]));

  /* Names of colours by those of the scheme. */
  function resolved(value, style, key) {
    if (Array.isArray(value)) {
      const isData = !colourKeys.has(key) && (typeof value[0] !== "object" || Array.isArray(value[0]));
      return isData ? value : value.map((one) => resolved(one, style, key));
    }
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolved(v, style, k)]));
    }
    if (typeof value === "string" && colourKeys.has(key) && value.startsWith("@")) {
      return style.getPropertyValue(`--${value.slice(1)}`).trim();
    }
    return value;
  }

  /* Titles of axes broken into lines of so many characters. */
  function broken(axis, characters) {
    const text = axis.title && axis.title.text;
    if (!text || text.length <= characters) return axis;
    const lines = text.split(" ").reduce((done, word) => {
      const line = done.at(-1);
      if (line && line.length + word.length < characters) done[done.length - 1] = `${line} ${word}`;
      else done.push(word);
      return done;
    }, []);
    return { ...axis, title: { ...axis.title, text: lines.join("<br>") } };
  }

  /* For a small screen: titles of axes take several lines, and a logarithmic axis along x has labels at 1 only. */
  function fitted(axis, name, place) {
    const isX = name.startsWith("x");
    const room = isX ? place.clientWidth - 90 : place.clientHeight - 110;
    return broken(isX && axis.dtick === "D2" ? { ...axis, dtick: 1 } : axis, Math.max(12, Math.floor(room / LETTER_PX)));
  }

  function layoutOf(figure, style, size, place) {
    const small = narrow.matches && !size.width;
    const axis = { gridcolor: "@rule", linecolor: "@rule", zerolinecolor: "@rule", automargin: true };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: small ? 11 : 12, color: "@text" },
      margin: { l: small ? 44 : 60, r: small ? 10 : 20, t: 30, b: 44 },
      separators: ".,",
      showlegend: true,
      legend: { traceorder: "normal", orientation: "h", x: 0, y: 1, yanchor: "bottom", xanchor: "left" },
      hoverlabel: { bgcolor: "@panel", bordercolor: "@rule", font: { color: "@text" }, align: "left" },
      dragmode: coarse.matches ? false : "zoom",
      autosize: !size.width,
      ...size,
      ...figure.layout,
    };
    for (const name of new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))])) {
      layout[name] = { ...axis, ...layout[name] };
      if (layout[name].type === "multicategory") layout[name].tickfont = { size: 11, ...layout[name].tickfont };
      if (small) layout[name] = fitted(layout[name], name, place);
    }
    return resolved(layout, style);
  }

  /* What colour says alone, some eyes cannot read: shapes of points by series, and patterns on colours that are close. */
  function marked(traces) {
    const points = traces.filter((trace) => (trace.mode || "").includes("markers"));
    return traces.map((trace) => {
      const { color, symbol } = trace.marker || {};
      const shape = typeof color === "string" && trace.type === "bar" ? PATTERNS[color] : undefined;
      if (shape) {
        return { ...trace, marker: { ...trace.marker, pattern: { shape, size: 5, solidity: 0.35, fgcolor: "@text", bgcolor: color } } };
      }
      if (points.includes(trace) && !symbol) {
        return { ...trace, marker: { ...trace.marker, symbol: SYMBOLS[points.indexOf(trace) % SYMBOLS.length] } };
      }
      return trace;
    });
  }

  async function plot(place, figure, size) {
    const style = getComputedStyle(root);
    // Legends keep the room that they took in the width before, unless the chart is begun anew.
    Plotly.purge(place);
    await Plotly.newPlot(place, marked(figure.traces).map((trace) => resolved(trace, style)), layoutOf(figure, style, size, place), {
      responsive: !size.width,
      displayModeBar: false,
      doubleClick: "reset",
    });
  }

  /* A legend of many lines makes the chart higher rather than the drawing in it lower. */
  async function makeRoomForLegend(place) {
    const legend = place.querySelector(".legend .bg");
    const extra = legend ? Number(legend.getAttribute("height")) - LEGEND_PX : 0;
    if (extra < 1) return;
    place.style.height = `${place.clientHeight + Math.round(extra)}px`;
    await Plotly.Plots.resize(place);
  }

  async function draw(place) {
    zoom.end(place);
    place.style.height = heights.get(place);
    await plot(place, figures[place.id], {});
    await makeRoomForLegend(place);
    zoom.begin(place);
    place.dataset.state = "drawn";
    root.dataset.drawn = String(places.filter((one) => one.dataset.state === "drawn").length);
  }

  /* Of a chart with more rows than a sheet of paper holds, as many charts as it takes. */
  function sheetsOf(place, figure) {
    const height = parseFloat(heights.get(place));
    const [last, first] = (figure.layout.yaxis && figure.layout.yaxis.range) || [];
    const sheets = figure.layout.yaxis && figure.layout.yaxis.ticktext ? Math.ceil(height / PRINT_HEIGHT_PX) : 1;
    const rows = Math.ceil((last - first) / sheets);
    return Array.from({ length: sheets }, (_, sheet) => {
      const yaxis = { ...figure.layout.yaxis };
      if (sheets > 1) yaxis.range = [first + Math.min(rows * (sheet + 1), last - first), first + rows * sheet];
      const share = sheets > 1 ? (yaxis.range[0] - yaxis.range[1]) / rows : 1;
      return { figure: { ...figure, layout: { ...figure.layout, yaxis } }, height: (Math.min(height, PRINT_HEIGHT_PX) - 120) * share + 120 };
    });
  }

  function drawForPrint() {
    root.dataset.print = "1";
    for (const place of places) {
      const sheets = sheetsOf(place, figures[place.id]).map(({ figure, height }) => {
        const sheet = document.createElement("div");
        sheet.className = "sheet";
        place.before(sheet);
        plot(sheet, figure, { width: PRINT_WIDTH_PX, height });
        return sheet;
      });
      place.closest("figure").classList.toggle("long", sheets.length > 1);
    }
  }

  function endPrint() {
    delete root.dataset.print;
    for (const sheet of document.querySelectorAll(".sheet")) {
      Plotly.purge(sheet);
      sheet.remove();
    }
  }

  async function inflated(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  function addTools(place, hasCharts) {
    const name = place.closest("figure").querySelector("h3").textContent;
    const data = tables.toolsOf(place.id, name, figures[place.id]);
    const row = document.createElement("div");
    row.className = "tools";
    if (hasCharts) row.append(zoom.buttonsOf(place, name));
    row.append(data.button, data.link);
    place.before(row);
    place.after(data.place);
    if (hasCharts) zoom.listen(place);
  }

  /* Chromium and Firefox let keys scroll what overflows by themselves, others only what takes the focus. */
  function addFocusToWideTables() {
    for (const scroll of document.querySelectorAll("section .scroll:not(.data)")) {
      if (scroll.scrollWidth > scroll.clientWidth) scroll.tabIndex = 0;
    }
  }

  function markPlaceInContents() {
    const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
    const seen = new IntersectionObserver(
      (entries) => {
        for (const entry of entries.filter((one) => one.isIntersecting)) {
          for (const link of links.values()) link.removeAttribute("aria-current");
          const link = links.get(entry.target.id);
          link.setAttribute("aria-current", "true");
          link.closest("nav").scrollLeft = link.offsetLeft - 40;
        }
      },
      { rootMargin: "-10% 0px -80% 0px" },
    );
    for (const id of links.keys()) seen.observe(document.getElementById(id));
  }

  async function main() {
    const hasCharts = "DecompressionStream" in window;
    for (const place of places) addTools(place, hasCharts);
    addFocusToWideTables();
    markPlaceInContents();
    if (!hasCharts) {
      root.dataset.state = "no-charts";
      say(
        "This browser cannot inflate the chart library (it lacks DecompressionStream), so no charts are shown; the tables hold the same numbers.",
      );
      return;
    }
    const script = document.createElement("script");
    script.textContent = await inflated("plotly");
    document.head.append(script);
    const observer = new IntersectionObserver(
      async (entries) => {
        const near = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
        for (const place of near) observer.unobserve(place);
        await Promise.all(near.map(draw));
        root.dataset.state = "ready";
      },
      { rootMargin: NEAR },
    );
    for (const place of places) observer.observe(place);
    if (!places.length) root.dataset.state = "ready";
    const redraw = () => places.filter((place) => place.dataset.state === "drawn").forEach(draw);
    for (const query of [dark, narrow]) query.addEventListener("change", redraw);
    window.addEventListener("beforeprint", drawForPrint);
    window.addEventListener("afterprint", endPrint);
  }

  main();
})();
