"use strict";
(() => {
  const root = document.documentElement;
  const fail = (text) => {
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
    const place = document.getElementById("no-charts");
    place.hidden = false;
    place.textContent = text;
  };
  window.addEventListener("error", (event) => fail(`A chart could not be drawn: ${event.message}`));
  window.addEventListener("unhandledrejection", (event) => fail(`A chart could not be drawn: ${event.reason}`));

  const PRINT_WIDTH_PX = 690;
  const colourKeys = new Set(["color", "bgcolor", "bordercolor", "gridcolor", "linecolor", "zerolinecolor", "activecolor"]);

  function resolved(value, style, key) {
    if (Array.isArray(value)) return value;
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolved(v, style, k)]));
    }
    if (typeof value === "string" && colourKeys.has(key) && value.startsWith("@")) {
      return style.getPropertyValue(`--${value.slice(1)}`).trim();
    }
    return value;
  }

  function layoutOf(figure, style, narrow, height) {
    const printing = root.dataset.print === "1";
    const axis = { gridcolor: "@rule", linecolor: "@rule", zerolinecolor: "@rule", automargin: true };
    const layout = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12, color: "@text" },
      margin: { l: narrow ? 44 : 60, r: narrow ? 10 : 20, t: 30, b: 44 },
      separators: ".,",
      showlegend: true,
      legend: { traceorder: "normal", orientation: "h", x: 0, y: 1, yanchor: "bottom", xanchor: "left" },
      hoverlabel: { bgcolor: "@panel", bordercolor: "@rule", font: { color: "@text" }, align: "left" },
      modebar: { orientation: "v", bgcolor: "@panel", color: "@muted", activecolor: "@text" },
      dragmode: narrow ? false : "zoom",
      autosize: !printing,
      ...(printing ? { width: PRINT_WIDTH_PX, height } : {}),
      ...figure.layout,
    };
    for (const name of ["xaxis", "yaxis", "yaxis2"]) {
      if (layout[name] || name !== "yaxis2") layout[name] = { ...axis, ...(layout[name] || {}) };
    }
    layout.shapes = (layout.shapes || []).map((shape) => resolved(shape, style));
    return resolved(layout, style);
  }

  async function draw(figures) {
    const style = getComputedStyle(root);
    const narrow = window.innerWidth < 700;
    let drawn = 0;
    for (const [id, figure] of Object.entries(figures)) {
      const place = document.getElementById(id);
      if (!place) continue;
      const traces = figure.traces.map((trace) => resolved(trace, style));
      // Legends keep the room that they took in the width before, unless the chart is begun anew.
      Plotly.purge(place);
      await Plotly.newPlot(place, traces, layoutOf(figure, style, narrow, place.clientHeight), {
        responsive: true,
        displaylogo: false,
        displayModeBar: narrow ? false : "hover",
        modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
      });
      drawn += 1;
    }
    root.dataset.drawn = String(drawn);
    root.dataset.state = "ready";
  }

  async function inflated(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  async function main() {
    if (!("DecompressionStream" in window)) {
      root.dataset.state = "no-charts";
      const place = document.getElementById("no-charts");
      place.hidden = false;
      place.textContent =
        "This browser cannot inflate the chart library (it lacks DecompressionStream), so no charts are shown; the tables hold the same numbers.";
      return;
    }
    const script = document.createElement("script");
    script.textContent = await inflated("plotly");
    document.head.append(script);
    const figures = JSON.parse(document.getElementById("figures").textContent);
    await draw(figures);
    const redraw = () => draw(figures);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    window.addEventListener("beforeprint", () => {
      root.dataset.print = "1";
      redraw();
    });
    window.addEventListener("afterprint", () => {
      delete root.dataset.print;
      redraw();
    });
  }

  main();
})();
