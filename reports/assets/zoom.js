/* Zoom of charts along x by buttons, keys, wheel, drag and touch; charts over the time of a run zoom together. */
const zoom = (() => {
  const STEP = 0.6;
  const PAN = 0.3;
  const TIME = "s since the ";
  const begun = new Map();
  const ranges = new Map();
  const waiting = new Map();
  const seen = new Set();

  /* Charts of one group show the same range. */
  function groupOf(place) {
    const axis = place.layout && place.layout.xaxis;
    const title = (axis && axis.title && axis.title.text) || "";
    return title.startsWith(TIME) ? title : place.id;
  }

  function shown(place) {
    const axis = place._fullLayout.xaxis;
    return axis.range.map((value) => axis.r2l(value));
  }

  const isSame = (a, b, whole) =>
    a.every((value, end) => Math.abs(value - b[end]) <= 1e-6 * Math.abs(whole[1] - whole[0]));

  /* Charts out of sight follow when they are seen. */
  function flush() {
    for (const [place, update] of [...waiting].filter(([one]) => seen.has(one))) {
      waiting.delete(place);
      Plotly.relayout(place, update);
    }
  }

  const sight = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) seen[isIntersecting ? "add" : "delete"](target);
    flush();
  });

  function relayout(place, update) {
    waiting.set(place, update);
    requestAnimationFrame(flush);
  }

  function apply(place, range) {
    const { layout } = begun.get(place);
    tell(place, range);
    if (range === null) return relayout(place, structuredClone(layout));
    // Labels at fixed steps may all lie outside of a part of the axis.
    const ticks = layout["xaxis.dtick"] === undefined ? {} : { "xaxis.dtick": null, "xaxis.tickmode": "auto" };
    relayout(place, { ...ticks, "xaxis.range": range.map((value) => place._fullLayout.xaxis.l2r(value)) });
  }

  /* A range for the chart and its group; the whole of it, or null, puts them back as they began. */
  function show(place, range) {
    const group = groupOf(place);
    const { whole } = begun.get(place);
    const kept = range !== null && !isSame(range, whole, whole) ? range : null;
    if (kept === null) ranges.delete(group);
    else ranges.set(group, kept);
    for (const other of begun.keys()) if (groupOf(other) === group) apply(other, kept);
  }

  /* The part of a numeric axis that is shown, in words; empty for all of it. */
  function tell(place, range) {
    const { type } = place._fullLayout.xaxis;
    const isNumber = type === "linear" || type === "log";
    const number = (value) => Number((type === "log" ? 10 ** value : value).toPrecision(4)).toLocaleString("en");
    begun.get(place).output.textContent = range && isNumber ? `${number(range[0])} to ${number(range[1])}` : "";
  }

  /* The range moved into what there is, and no wider than that. */
  function within(range, whole) {
    const [low, high] = [Math.min(...whole), Math.max(...whole)];
    const width = Math.min(high - low, range[1] - range[0]);
    const start = Math.min(Math.max(range[0], low), high - width);
    return [start, start + width];
  }

  /* Made narrower (factor below 1) or wider about a point at a share of the width. */
  function scale(place, factor, share = 0.5) {
    const { whole, target } = begun.get(place);
    const [low, high] = target();
    const at = low + (high - low) * share;
    show(place, within([at - (at - low) * factor, at + (high - at) * factor], whole));
  }

  function pan(place, share) {
    const { whole, target } = begun.get(place);
    const [low, high] = target();
    const by = (high - low) * share;
    show(place, within([low + by, high + by], whole));
  }

  const ACTIONS = [
    ["+", "Zoom in", (place) => scale(place, STEP), ["+", "="]],
    ["−", "Zoom out", (place) => scale(place, 1 / STEP), ["-", "_"]],
    ["◂", "Earlier or lower", (place) => pan(place, -PAN), ["ArrowLeft"]],
    ["▸", "Later or higher", (place) => pan(place, PAN), ["ArrowRight"]],
    ["↺", "Show everything", (place) => show(place, null), ["0", "Home"]],
  ];

  function shareAt(place, clientX) {
    const { _offset, _length } = place._fullLayout.xaxis;
    return Math.min(1, Math.max(0, (clientX - place.getBoundingClientRect().left - _offset) / _length));
  }

  /* Keys work while the chart has the focus; so does the wheel, which else scrolls the page. */
  function listen(place) {
    place.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !begun.has(place)) return;
      if (event.key === "Escape") place.blur();
      const action = ACTIONS.find(([, , , keys]) => keys.includes(event.key));
      if (!action) return;
      event.preventDefault();
      action[2](place);
    });
    place.addEventListener("pointerdown", () => place.focus({ preventScroll: true }), true);
    place.addEventListener(
      "wheel",
      (event) => {
        if (!begun.has(place) || !(event.ctrlKey || document.activeElement === place)) return;
        event.preventDefault();
        event.stopPropagation();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(place, Math.sign(event.deltaX) * 0.1);
        else scale(place, event.deltaY < 0 ? 0.8 : 1.25, shareAt(place, event.clientX));
      },
      { capture: true, passive: false },
    );
    touch(place);
    sight.observe(place);
  }

  /* One finger pans, two zoom; the page scrolls up and down as ever. */
  function touch(place) {
    const fingers = new Map();
    const spread = () => {
      const at = [...fingers.values()];
      return { middle: at.reduce((sum, x) => sum + x, 0) / at.length, width: at.length > 1 ? Math.abs(at[0] - at[1]) : 0 };
    };
    place.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch") fingers.set(event.pointerId, event.clientX);
    }, true);
    place.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId) || !begun.has(place)) return;
      const before = spread();
      fingers.set(event.pointerId, event.clientX);
      const after = spread();
      if (before.width > 20 && after.width > 20) scale(place, before.width / after.width, shareAt(place, after.middle));
      pan(place, (before.middle - after.middle) / place._fullLayout.xaxis._length);
    }, true);
    // Plotly would take two fingers for a double click; a tap still reaches it, as that of a mouse.
    place.addEventListener("touchstart", (event) => event.stopPropagation(), { capture: true, passive: true });
    for (const end of ["pointerup", "pointercancel"]) {
      window.addEventListener(end, (event) => fingers.delete(event.pointerId));
    }
  }

  function buttonsOf(place, name) {
    const group = document.createElement("span");
    group.className = "zoom";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", `Zoom: ${name}`);
    for (const [sign, title, act, keys] of ACTIONS) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = sign;
      button.title = `${title} (${keys[0].replace("Arrow", "").toLowerCase()})`;
      button.setAttribute("aria-label", title);
      button.addEventListener("click", () => begun.has(place) && act(place));
      group.append(button);
    }
    const output = document.createElement("output");
    output.id = `${place.id}-range`;
    group.prepend(output);
    return group;
  }

  const isAxis = (key) => /^[xy]axis\d*$/.test(key);

  /* What the chart shows when nothing is zoomed. */
  function remember(place) {
    const { layout } = begun.get(place);
    for (const name of Object.keys(place._fullLayout).filter(isAxis)) {
      layout[`${name}.range`] = place._fullLayout[name].range.slice();
    }
    const { dtick, tickmode } = place._fullLayout.xaxis;
    if (tickmode === "linear") Object.assign(layout, { "xaxis.dtick": dtick, "xaxis.tickmode": tickmode });
    begun.get(place).whole = shown(place);
  }

  /* To be called whenever the chart was drawn anew: it goes back to the range that it had. */
  function begin(place) {
    const key = groupOf(place);
    const one = { layout: {}, output: document.getElementById(`${place.id}-range`) };
    one.target = () => ranges.get(key) || one.whole;
    begun.set(place, one);
    remember(place);
    place.on("plotly_relayout", (event) => {
      const isZoom = Object.keys(event).some((name) => name.startsWith("xaxis."));
      const now = shown(place);
      if (!isZoom && !ranges.has(key)) remember(place);
      else if (isZoom && !waiting.has(place) && !isSame(now, one.target(), one.whole)) show(place, now);
    });
    if (ranges.has(key)) apply(place, ranges.get(key));
  }

  function end(place) {
    begun.delete(place);
    waiting.delete(place);
  }

  return { begin, buttonsOf, end, listen };
})();
