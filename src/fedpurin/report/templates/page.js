"use strict";
// Glue only: every picture was computed before; here views are swapped, recoloured and stepped through.
(() => {
  const page = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(hover: none)").matches;
  const state = { moment: Object.keys(page.moments)[0], theme: dark.matches ? "dark" : "light", chosen: false };
  const options = {
    responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover",
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    showSendToCloud: false, plotlyServerURL: "",
  };

  // A square picture must not be higher than it is wide; meta.square is what stands above it.
  function fit(layout, width) {
    if (layout.meta?.square !== undefined) layout.height = Math.min(layout.height, width + layout.meta.square);
  }

  // Names below a plot, as many as there is room for.
  function thin(layout, width) {
    const { categoryarray, tickvals } = layout.xaxis ?? {};
    if (!categoryarray || !tickvals) return;
    const longest = Math.max(...tickvals.map((name) => name.length));
    const every = Math.ceil(tickvals.length / Math.max(3, (width - 140) / (8 * longest + 6)));
    const some = (list) => list.filter((_, i) => i % every === 0);
    layout.xaxis = { ...layout.xaxis, tickvals: some(tickvals), ticktext: some(layout.xaxis.ticktext) };
  }

  class ChartBox {
    constructor(chart) {
      this.chart = chart;
      this.box = document.getElementById(chart.id);
      this.plots = [...this.box.querySelectorAll(".plot")];
      this.choice = Object.fromEntries(chart.controls.map((c) => [c.name, c.options[0]]));
      for (const input of this.box.querySelectorAll("[data-control]"))
        input.addEventListener("change", () => { this.choice[input.dataset.control] = input.value; this.draw(); });
      this.range = this.box.querySelector("input[type=range]");
      if (this.range) {
        this.range.addEventListener("input", () => this.step());
        this.box.querySelector("[data-play]").addEventListener("click", () => this.play());
      }
    }

    view() {
      const key = this.chart.controls.map((c) => c.name === "moment" && c.options.includes(state.moment)
        ? state.moment : this.choice[c.name]).join("|");
      return this.chart.views[key];
    }

    async draw(theme = state.theme) {
      const view = this.view();
      this.box.querySelector("[data-sentence]").textContent = view.sentence;
      const table = this.box.querySelector("[data-table]");
      if (table) table.innerHTML = view.table;  // escaped when it was made
      const moment = this.chart.controls.find((c) => c.name === "moment");
      const chip = this.box.querySelector("[data-chip]");
      if (chip) chip.textContent = page.moments[moment.options.includes(state.moment) ? state.moment : moment.options[0]];
      await Promise.all(this.plots.map((plot, i) => {
        const figure = view.figures[i];
        const layout = { ...figure.layout, template: page.templates[theme] };
        if (touch) layout.dragmode = false;
        // Two columns, or one of long names: by itself plotly takes as many as the longest name allows.
        const width = plot.clientWidth;
        const long = figure.data.some((trace) => trace.name?.length > 22);
        if (width < 520) layout.legend = { ...layout.legend, entrywidth: long ? width - 60 : width / 2 - 50 };
        fit(layout, width);
        thin(layout, width);
        plot.style.height = layout.height + "px";
        return Plotly.react(plot, figure.data, layout, options);
      }));
      if (this.range) {
        this.frames = view.figures.map((figure) => figure.frames);
        const rounds = this.frames[0].length;
        const kept = this.rounds === rounds ? this.range.value : 0;
        this.rounds = rounds;
        this.range.max = rounds - 1;
        this.range.value = kept;
        await this.step();
      }
    }

    // Frames hold only what changes from round to round.
    async step() {
      const place = Number(this.range.value);
      this.box.querySelector("output").textContent = this.frames[0][place].name;
      await Promise.all(this.plots.map((plot, i) => {
        const frame = this.frames[i][place];
        const changes = {};
        for (const key of new Set(frame.data.flatMap(Object.keys))) {
          if (key !== "type") changes[key] = frame.data.map((trace) => trace[key]);
        }
        return Plotly.restyle(plot, changes, frame.traces);
      }));
    }

    play() {
      if (this.timer) { clearInterval(this.timer); this.timer = null; return; }
      if (Number(this.range.value) >= this.rounds - 1) this.range.value = 0;
      this.timer = setInterval(() => {
        if (Number(this.range.value) >= this.rounds - 1) return this.play();
        this.range.value = Number(this.range.value) + 1;
        return this.step();
      }, 350);
    }
  }

  const boxes = page.charts.map((chart) => new ChartBox(chart));

  function paint(theme) {
    root.dataset.theme = theme;
    for (const box of boxes) for (const plot of box.plots) Plotly.relayout(plot, { template: page.templates[theme] });
  }

  function setMoment(moment) {
    state.moment = moment;
    for (const block of document.querySelectorAll("[data-moment]")) block.hidden = block.dataset.moment !== moment;
    for (const box of boxes) if (box.chart.controls.some((c) => c.name === "moment")) box.draw();
  }

  for (const input of document.querySelectorAll(".bar [data-control=moment]"))
    input.addEventListener("change", () => setMoment(input.value));
  const first = document.querySelector(".bar [data-control=moment]");
  if (first) state.moment = first.value;

  document.getElementById("theme").addEventListener("click", () => {
    state.chosen = true;
    state.theme = state.theme === "dark" ? "light" : "dark";
    paint(state.theme);
  });
  dark.addEventListener("change", () => {
    if (state.chosen) return;
    state.theme = dark.matches ? "dark" : "light";
    paint(state.theme);
  });

  // Paper is white and narrower than most screens.
  const PAPER = 700;
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details.moments, details.first")) details.open = true;
    for (const box of boxes) for (const plot of box.plots) {
      const layout = { meta: plot.layout.meta, height: Math.max(230, 0.76 * plot.layout.height) };
      const width = PAPER / box.plots.length - 4;
      fit(layout, width);
      plot.style.height = layout.height + "px";
      Plotly.relayout(plot, { template: page.templates.light, width, height: layout.height });
    }
  });
  addEventListener("afterprint", () => {
    for (const box of boxes) for (const plot of box.plots) plot.layout.width = undefined;
    for (const box of boxes) box.draw().then(() => Promise.all(box.plots.map((plot) => Plotly.Plots.resize(plot))));
  });

  root.dataset.theme = state.theme;
  Promise.all(boxes.map((box) => box.draw())).then(() => { root.dataset.ready = "true"; });
})();
