// Curves over time, with marks where something happened. The library is loaded once a curve is shown.

import { html, useEffect, useRef, useState } from "./preact.js";

let library = null;

function load() {
  library ??= import("./uplot.js").then(
    (module) => module.default,
    (error) => {
      // The next curve asks anew.
      library = null;
      throw error;
    },
  );
  return library;
}

function colour(name) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${name})`;
  probe.style.display = "none";
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

function faint(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g);
  return `rgba(${red}, ${green}, ${blue}, 0.22)`;
}

/**
 * `series`: `{ name, tone, values, isFilled }`, each value standing until the next time of `times` (seconds);
 * `marks`: times at which something happened.
 */
export function Chart({ label, times, series, marks, format }) {
  const box = useRef(null);
  const [uPlot, set] = useState(null);
  const [isMissing, miss] = useState(false);
  const [scheme, dressed] = useState(0);
  useEffect(() => {
    let gone = false;
    load().then((found) => gone || set(() => found), () => gone || miss(true));
    const redraw = () => dressed((count) => count + 1);
    const observer = new MutationObserver(redraw);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", redraw);
    return () => {
      gone = true;
      observer.disconnect();
      dark.removeEventListener("change", redraw);
    };
  }, []);
  useEffect(() => {
    if (!uPlot) return undefined;
    const [text, line] = [colour("muted"), colour("line")];
    const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui, sans-serif" };
    const paths = uPlot.paths.stepped({ align: 1 });
    const options = {
      width: Math.max(240, box.current.clientWidth),
      height: 220,
      legend: { live: true },
      cursor: { y: false, points: { size: 6 } },
      scales: { y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] } },
      axes: [axis, { ...axis, size: 62, values: (_, all) => all.map(format) }],
      series: [
        { value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleString()) },
        ...series.map(({ name, tone, isFilled, isDashed }) => {
          const stroke = colour(tone);
          return {
            label: name, stroke, width: 1.5, paths, points: { show: false },
            fill: isFilled ? faint(stroke) : undefined, dash: isDashed ? [5, 4] : undefined,
            value: (_, value) => (value === null ? "" : format(value)),
          };
        }),
      ],
      hooks: {
        draw: [
          (plot) => {
            const { ctx } = plot;
            ctx.save();
            ctx.strokeStyle = text;
            ctx.setLineDash([2, 4]);
            for (const at of marks) {
              const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
              if (x < plot.bbox.left || plot.bbox.left + plot.bbox.width < x) continue;
              ctx.beginPath();
              ctx.moveTo(x, plot.bbox.top);
              ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
              ctx.stroke();
            }
            ctx.restore();
          },
        ],
      },
    };
    const plot = new uPlot(options, [times, ...series.map(({ values }) => values)], box.current);
    const resize = new ResizeObserver(() => plot.setSize({ width: Math.max(240, box.current.clientWidth), height: 220 }));
    resize.observe(box.current);
    return () => {
      resize.disconnect();
      plot.destroy();
    };
  }, [uPlot, scheme, times, series, marks]);
  if (isMissing) {
    return html`<p class="nothing" role="alert">What draws curves cannot be loaded: fedqd does not answer, or this page is older than it. Load the page anew.</p>`;
  }
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}
