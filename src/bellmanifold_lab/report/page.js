(() => {
  const byId = (id) => document.getElementById(id);
  const read = (id) => JSON.parse(byId(id).textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const listen = (id, kind, action) => byId(id).addEventListener(kind, action);
  const UNKNOWN = 65535;

  // ---- colours -------------------------------------------------------------------------------------------------
  // Actions have the palette of the library's pictures; agents have Okabe and Ito's, as in the paper's figures, two of them lighter on dark pages.
  const ACTIONS = ["#CC6677", "#4477AA", "#DDCC77", "#117733", "#AA4499", "#88CCEE", "#882255", "#44AA99"];
  const AGENTS = {
    "manifold": ["--exact", "dashdot"], "bayes-br": ["--relaxed", "solid"], "bayes-br-hmc": ["#E69F00", "dash"],
    "bayes-td": ["#009E73", "longdashdot"], "bayes-td-en": ["#CC79A7", "dot"], "bayes-td-max": ["#D55E00", "longdash"],
    "psrl": ["#8f8f8f", "dash"], "rlsvi": ["#a6761d", "dot"], "q-learning": ["#7570b3", "dashdot"],
  };
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const style = (agent) => {
    const [colour, dash] = AGENTS[agent] || ["#7570b3", "solid"];
    return [colour.startsWith("--") ? css(colour) : colour, dash];
  };
  const faint = (colour) => colour + "2e";

  // ---- plots ---------------------------------------------------------------------------------------------------
  const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };

  function layout(yTitle, more) {
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
    return {
      font: { family: "system-ui, sans-serif", size: 13, color: css("--ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 55, r: 12, t: 12, b: 45 },
      hoverlabel: { bgcolor: css("--paper"), font: { color: css("--ink") } }, hovermode: "x unified",
      xaxis: { title: { text: "episode" }, ...axis }, yaxis: { title: { text: yTitle }, ...axis },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: css("--quiet"), activecolor: css("--ink") }, ...more,
    };
  }

  // Plotly interprets some tags in labels; names must stay text.
  const label = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function curve(found, name, dash, key, sdKey, within) {
    const [colour] = style(found.agent);
    const line = {
      x: found.episode, y: found[key], name: label(name), legendgroup: name, mode: "lines", connectgaps: false,
      line: { color: colour, dash, width: 2 }, hovertemplate: "%{y:.3g}",
    };
    if (!sdKey || found.runs < 2) return [line];
    const at = found[key].map((_, k) => k).filter((k) => found[key][k] !== null);
    const [least, most] = within;  // the band of a probability stays between 0 and 1
    const upper = at.map((k) => Math.min(most, found[key][k] + found[sdKey][k]));
    const lower = at.map((k) => Math.max(least, found[key][k] - found[sdKey][k]));
    const x = at.map((k) => found.episode[k]);
    const band = {
      x: [...x, ...x.slice().reverse()], y: [...upper, ...lower.reverse()], fill: "toself", fillcolor: faint(colour),
      line: { width: 0 }, mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: name,
    };
    return [band, line];
  }

  const curves = read("curves-data");
  const PLOTS = [
    ["regret-plot", "cumulative completed regret", "regret", "regret_sd", {}],
    ["belief-plot", "probability of the optimum", "believed", "believed_sd", { range: [-0.02, 1.02] }],
    ["optimal-plot", "share of runs", "optimal", null, { range: [-0.02, 1.02] }],
    ["arrived-plot", "share of runs", "arrived", null, { range: [-0.02, 1.02] }],
    ["coverage-plot", "share of pairs seen", "coverage", null, { range: [-0.02, 1.02] }],
  ];

  function drawPlots() {
    const problem = curves.problems[byId("choose-problem").selectedIndex];
    const panel = problem.panels[byId("choose-panel").selectedIndex];
    byId("plots-title").textContent = problem.problem + ", " + panel.name;
    const seen = {};
    const chosen = panel.curves.map(([k, name]) => {
      const found = curves.curves[k];
      const rank = (seen[found.agent] = (seen[found.agent] ?? -1) + 1);
      const dash = rank === 0 ? style(found.agent)[1] : DASHES[rank % DASHES.length];
      return [found, name, dash];
    });
    for (const [id, title, key, sdKey, yaxis] of PLOTS) {
      const known = chosen.filter(([found]) => found[key].some((value) => value !== null));
      byId(id).closest("figure").hidden = known.length === 0;
      if (known.length === 0) continue;
      const within = yaxis.range ? [0, 1] : [-Infinity, Infinity];
      const traces = known.flatMap(([found, name, dash]) => curve(found, name, dash, key, sdKey, within));
      const shape = layout(title, { showlegend: true });
      Object.assign(shape.yaxis, yaxis);
      Plotly.react(id, traces, shape, CONFIG);
    }
    drawLosses(chosen);
  }

  /** Expected and true loss, and when runs stopped exploring. */
  function drawLosses(chosen) {
    const known = chosen.filter(([found]) => found.expected_loss.length > 0);
    byId("loss-plot").closest("figure").hidden = known.length === 0;
    if (known.length === 0) return;
    const traces = known.flatMap(([found, name, dash]) => {
      const [colour] = style(found.agent), { stop } = found;
      const [expected] = curve(found, name + ", expected", dash === "dot" ? "solid" : dash, "expected_loss"), [real] = curve(found, name + ", true", "dot", "true_loss");
      const said = stop && `${stop.runs} of ${found.runs} stopped exploring before episode ${stop.episode}: expected loss ${amount(stop.expected)}, true ${amount(stop.true)}`;
      const mark = stop && {
        x: [stop.episode], y: [stop.expected], mode: "markers", name: label(name + ", stop"), showlegend: false,
        marker: { symbol: "diamond", size: 11, color: colour, line: { color: css("--paper"), width: 1.5 } }, hovertemplate: `${said}<extra></extra>`,
      };
      return mark ? [expected, real, mark] : [expected, real];
    });
    Plotly.react("loss-plot", traces, layout("loss per episode", { showlegend: true }), CONFIG);
  }

  function fill(select, names) {
    select.replaceChildren(...names.map((name, k) => {
      const option = document.createElement("option");
      option.value = String(k);
      option.textContent = name;
      return option;
    }));
  }

  function chooseProblem() {
    fill(byId("choose-panel"), curves.problems[byId("choose-problem").selectedIndex].panels.map((panel) => panel.name));
    drawPlots();
  }

  // ---- the drawing ---------------------------------------------------------------------------------------------
  // shapes.js, which precedes this text, draws arrows and pies
  const FEW = 60, BROAD = 1.9;

  function drawScene(scene) {
    const svg = byId("drawing");
    svg.replaceChildren();
    svg.setAttribute("aria-label", "The problem " + scene.name);
    const place = scene.place.map(([x, y]) => [x * UNIT, -y * UNIT]);
    const xs = place.map(([x]) => x), ys = place.map(([, y]) => y), room = RADIUS * 3;
    const low = [Math.min(...xs) - room, Math.min(...ys) - room];
    const [width, height] = [Math.max(...xs) + room - low[0], Math.max(...ys) + room - low[1]];
    svg.setAttribute("viewBox", [...low, width, height].map(rounded).join(" "));
    svg.closest(".stage").classList.toggle("broad", width > BROAD * height);
    const [halos, arrows, states] = ["halos", "arrows", "states"].map((name) => shape("g", { class: name }, svg));
    const first = {};
    scene.pair_state.forEach((state, pair) => { first[state] ??= pair; });
    const edges = [];
    scene.next.forEach((successors, pair) => successors.forEach(([target, probability]) => {
      const state = scene.pair_state[pair], colour = ACTIONS[scene.pair_action[pair] % ACTIONS.length];
      const arrow = arrowShape(place[state], place[target], pair - first[state], target === state);
      const halo = shape("path", { class: "halo", d: arrow.line, opacity: 0 }, halos);
      const group = drawArrow(arrow, colour, rounded(0.35 + 0.55 * probability), { class: "arrow", "data-edge": edges.length }, arrows);
      edges.push({ pair, target, probability, halo, group });
    }));
    const pies = scene.states.map((name, state) => {
      const [x, y] = place[state];
      const start = scene.initial.length === 1 && scene.initial[0] === state ? " start" : "";
      const { group, wedges } = drawState(place[state], { class: "state" + start, "data-state": state, role: "img" }, states);
      if (scene.states.length <= FEW) group.setAttribute("tabindex", "0");
      if (!scene.grid && scene.states.length <= FEW) {
        shape("text", { x, y: y - RADIUS - 7, "text-anchor": "middle" }, group).textContent = scene.short[state];
      }
      return { group, wedges };
    });
    const goal = place[place.length - 1];
    shape("circle", { class: "goal", cx: goal[0], cy: goal[1], r: RADIUS }, states);
    shape("text", { x: goal[0], y: goal[1] + 4, "text-anchor": "middle" }, states).textContent = scene.goal.length > 8 ? "goal" : scene.goal;
    return { scene, place, edges, pies };
  }

  function drawLegend(scene) {
    const entries = scene.actions.slice(0, ACTIONS.length).map((name, k) => [name, { stroke: ACTIONS[k], "stroke-width": 8 }]);
    entries.push(["not tried yet", { stroke: css("--ink"), "stroke-width": 2.5, "stroke-dasharray": "1.5 5", "stroke-linecap": "round" }]);
    entries.push(["played now", { stroke: css("--ink"), "stroke-width": 8 }]);
    if (player.run.on_route !== null) entries.push(["sampled routes, by their probability", { stroke: css("--sampled"), "stroke-width": 11, opacity: 0.7 }]);
    byId("legend").replaceChildren(...legendEntries(entries));
  }

  // ---- the player ----------------------------------------------------------------------------------------------
  const data = read("player-data");
  const unpack = (text) => {
    if (text === null) return null;
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Uint16Array(bytes.buffer);
  };
  const player = { stage: null, run: null, episode: 0, timer: null, shown: null };

  function unpacked(run) {
    run.ready ??= { pie: unpack(run.pie), value: unpack(run.value), onRoute: unpack(run.on_route), routes: unpack(run.route_probability ?? null) };
    return run.ready;
  }

  /** A packed number between 0 and 1 of this episode's belief; null if unknown. */
  function believed(kind, pair) {
    const packed = unpacked(player.run)[kind], pairs = player.stage.scene.pair_state.length;
    if (packed === null) return null;
    const value = packed[player.run.belief[player.episode] * pairs + pair];
    return value === UNKNOWN ? null : value / (UNKNOWN - 1);
  }

  function meanValue(pair) {
    const share = believed("value", pair), [low, high] = player.run.value_range;
    return share === null ? null : low + share * (high - low);
  }

  const tried = (pair) => player.run.first[pair] >= 0 && player.run.first[pair] <= player.episode;
  const percent = (share) => share === null ? "not recorded" : share > 0 && share < 0.0005 ? "< 0.001" : share.toFixed(3);
  const amount = (value) => value === null ? "not recorded" : value === 0 ? "0" : Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(2) : String(Number(value.toPrecision(4)));

  // Rewards in the sign and the words of the problem.
  const word = (inRewards, inCosts) => player.stage.scene.costs === null ? inRewards : inCosts;
  const worth = (reward) => amount(reward === null ? null : word(reward, 0 - reward));

  function pairsOf(state) {
    const found = [];
    player.stage.scene.pair_state.forEach((own, pair) => { if (own === state) found.push(pair); });
    return found;
  }

  function describeState(state) {
    const { scene } = player.stage;
    const lines = pairsOf(state).map((pair) => {
      const when = tried(pair) ? `first played in episode ${player.run.first[pair] + 1}` : "not tried yet";
      return `${scene.actions[scene.pair_action[pair]]}: optimal with probability ${percent(believed("pie", pair))}, mean ${word("value", "cost")} ${worth(meanValue(pair))}, ${when}`;
    });
    return [`state ${scene.states[state]}`, ...lines].join("\n");
  }

  function describeEdge({ pair, target, probability }) {
    const { scene } = player.stage, own = scene.pair_state[pair];
    const to = target === scene.states.length ? "goal" : scene.states[target];
    return [
      `${scene.states[own]}: ${scene.actions[scene.pair_action[pair]]} → ${to}` + (probability < 1 ? ` (with probability ${probability})` : ""),
      `${word("pays", "costs")} ${worth(scene.reward[pair])}; optimal with probability ${percent(believed("pie", pair))}, mean ${word("value", "cost")} ${worth(meanValue(pair))}`,
      `on a sampled route with probability ${percent(believed("onRoute", pair))}`,
    ].join("\n");
  }

  /** The arrows that this episode's moves followed: pairs with the states they led to. */
  function playedEdges() {
    const { run, stage, episode } = player, { scene } = stage, moves = run.moves[episode], goal = scene.states.length;
    const found = new Set();
    moves.forEach((pair, k) => {
      const only = scene.next[pair].length === 1 ? scene.next[pair][0][0] : null;
      const isLast = k + 1 === run.length[episode];
      const landing = k + 1 < moves.length ? scene.pair_state[moves[k + 1]] : only ?? (isLast && run.goal[episode] ? goal : null);
      if (landing !== null) found.add(pair + " " + landing);
    });
    return found;
  }

  function drawPies() {
    const { scene, place, pies } = player.stage;
    pies.forEach(({ group, wedges }, state) => {
      const slices = pairsOf(state).map((pair) => [believed("pie", pair) ?? 0, ACTIONS[scene.pair_action[pair] % ACTIONS.length], {}]);
      fillPie(wedges, place[state], slices.filter(([share]) => share > 1e-4));
      group.setAttribute("aria-label", describeState(state));
    });
  }

  function news() {
    const { run, episode, stage } = player;
    const seen = run.first.filter((first) => first >= 0 && first <= episode).length;
    const end = run.goal[episode] ? "reached the goal" : "did not reach the goal";
    const judged = run.optimal === null ? "whether the policy was optimal is unknown" : `the policy was ${run.optimal[episode] ? "optimal" : "not optimal"}`;
    const cut = run.length[episode] > run.moves[episode].length ? ` (the first ${run.moves[episode].length} are drawn)` : "";
    const orUnknown = (value) => (value === null ? "unknown" : amount(value));
    const over = run.stopped === null || episode < run.stopped ? "still exploring" : `stopped exploring before episode ${run.stopped + 1}`;
    const loss = run.expected_loss === null ? [] : [`Expected loss ${orUnknown(run.expected_loss[episode])}, true loss of the policy played ${orUnknown(run.true_loss[episode])}; ${over}.`];
    return [
      `Episode ${episode + 1} of ${run.moves.length}: ${run.length[episode]} ${run.length[episode] === 1 ? "move" : "moves"}${cut}, ${end}.`,
      `${word("Reward", "Cost")} ${worth(run.reward[episode])}, completed regret ${orUnknown(run.regret[episode])}, gap regret ${orUnknown(run.gap[episode])}; ${judged}.`,
      ...loss,
      `${seen} of ${stage.scene.pair_state.length} pairs played so far.` + (run.pie === null ? " Beliefs about actions were not recorded in this run." : ""),
    ].join("\n");
  }

  function drawEpisode() {
    const { run, stage, episode } = player, played = playedEdges();
    for (const { pair, target, halo, group } of stage.edges) {
      group.classList.toggle("untried", !tried(pair));
      group.classList.toggle("played", played.has(pair + " " + target));
      const share = believed("onRoute", pair);
      halo.setAttribute("opacity", share === null || share < 0.004 ? 0 : rounded(0.12 + 0.7 * share));
    }
    stage.edges.filter(({ group }) => group.classList.contains("played")).forEach(({ group }) => group.parentNode.append(group));
    drawPies();
    const slider = byId("episode");
    slider.value = String(episode + 1);
    slider.setAttribute("aria-valuetext", `episode ${episode + 1} of ${run.moves.length}`);
    byId("news").setAttribute("aria-live", player.timer === null ? "polite" : "off");
    byId("news").textContent = news();
    byId("drawing").dataset.episode = String(episode + 1);
    if (byId("numbers").open) drawNumbers();
    if (run.routes !== null) Plotly.relayout("routes-plot", { shapes: [cursor()] });
    if (!byId("tip").hidden && player.shown) byId("tip").textContent = player.shown();
  }

  function drawNumbers() {
    const { scene } = player.stage;
    byId("of-reward").textContent = word("reward", "cost");
    byId("of-value").textContent = `mean ${word("value", "cost")}`;
    byId("numbers-body").replaceChildren(...scene.pair_state.map((state, pair) => {
      const row = document.createElement("tr");
      const cells = [
        scene.states[state], scene.actions[scene.pair_action[pair]], worth(scene.reward[pair]), percent(believed("pie", pair)),
        worth(meanValue(pair)), percent(believed("onRoute", pair)), tried(pair) ? `episode ${player.run.first[pair] + 1}` : "not yet",
      ];
      row.append(...cells.map((text) => {
        const cell = document.createElement("td"), own = document.createElement("bdi");
        own.textContent = text;
        cell.append(own);
        return cell;
      }));
      return row;
    }));
  }

  const cursor = () => ({
    type: "line", x0: player.episode + 1, x1: player.episode + 1, yref: "paper", y0: 0, y1: 1, line: { color: css("--ink"), width: 1.5, dash: "dot" },
  });

  function drawRoutes() {
    const { run } = player;
    byId("routes-figure").hidden = run.routes === null;
    if (run.routes === null) return;
    const packed = unpacked(run).routes, episodes = run.moves.length, x = run.moves.map((_, k) => k + 1);
    const traces = run.routes.map(([name, isOptimal], k) => ({
      x, y: x.map((_, e) => (packed[k * episodes + e] === UNKNOWN ? null : packed[k * episodes + e] / (UNKNOWN - 1))),
      name: label(name) + (isOptimal ? " (optimal)" : ""), mode: "lines",
      line: { width: isOptimal ? 3.5 : 1.5, color: ACTIONS[k % ACTIONS.length], dash: DASHES[k % DASHES.length] }, hovertemplate: "%{y:.3f}",
    }));
    const shape = layout("probability", { showlegend: false, shapes: [cursor()], hovermode: "closest" });
    for (const trace of traces) trace.hovertemplate = "%{fullData.name}<br>episode %{x}: %{y:.3f}<extra></extra>";
    shape.yaxis.range = [-0.02, 1.02];
    Plotly.react("routes-plot", traces, shape, CONFIG).then((plot) => {
      plot.removeAllListeners("plotly_click");
      plot.on("plotly_click", (event) => { pause(); go(event.points[0].x - 1); });
    });
  }

  function go(episode) {
    player.episode = Math.min(Math.max(episode, 0), player.run.moves.length - 1);
    drawEpisode();
  }

  function pause() {
    clearInterval(player.timer);
    player.timer = null;
    const button = byId("play");
    button.textContent = "play";
    button.setAttribute("aria-label", "play");
    button.setAttribute("aria-pressed", "false");
  }

  function play() {
    if (player.episode + 1 >= player.run.moves.length) go(0);
    player.timer = setInterval(() => {
      if (player.episode + 1 >= player.run.moves.length) pause();
      else go(player.episode + 1);
    }, 600);
    const button = byId("play");
    button.textContent = "pause";
    button.setAttribute("aria-label", "pause");
    button.setAttribute("aria-pressed", "true");
  }

  const toggle = () => (player.timer === null ? play() : pause());

  const runsOf = (scene) => data.runs.filter((run) => run.scene === scene);
  const nameOf = (run) => run.agent + (run.settings ? ` (${run.settings})` : "");
  const agentsOf = (scene) => [...new Set(runsOf(scene).map(nameOf))];
  const played = () => [...new Set(data.runs.map((run) => run.scene))];

  function chooseScene() {
    const scene = played()[byId("choose-scene").selectedIndex];
    player.stage = drawScene(data.scenes[scene]);
    fill(byId("choose-agent"), agentsOf(scene));
    chooseAgent();
  }

  function candidates() {
    const scene = played()[byId("choose-scene").selectedIndex];
    return runsOf(scene).filter((run) => nameOf(run) === agentsOf(scene)[byId("choose-agent").selectedIndex]);
  }

  function chooseAgent() {
    fill(byId("choose-run"), candidates().map((run) => `seed ${run.seed}`));
    chooseRun();
  }

  function chooseRun() {
    pause();
    player.run = candidates()[byId("choose-run").selectedIndex];
    byId("episode").max = String(player.run.moves.length);
    byId("run-title").textContent = `${player.stage.scene.name}, ${nameOf(player.run)}, seed ${player.run.seed}`;
    drawLegend(player.stage.scene);
    drawRoutes();
    go(0);
  }

  // ---- pointing and keys ---------------------------------------------------------------------------------------
  function point_at(element) {
    const state = element.closest?.("[data-state]"), edge = element.closest?.("[data-edge]");
    if (state) return () => describeState(Number(state.dataset.state));
    return edge ? () => describeEdge(player.stage.edges[Number(edge.dataset.edge)]) : null;
  }

  function showTip(describe, x, y) {
    const tip = byId("tip");
    player.shown = describe;
    tip.hidden = describe === null;
    if (describe === null) return;
    tip.textContent = describe();
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  }

  function keys(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const on = event.target.tagName;
    if (on === "SELECT" || event.target.closest("details, .plot, .wide")) return;
    if (!byId("player").contains(event.target) && !event.key.startsWith("Arrow")) return;  // such keys scroll the page
    const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") showTip(null);
    else if (event.key === " " && on !== "BUTTON") toggle();
    else if (event.key in steps && on !== "INPUT") { pause(); go(player.episode + steps[event.key]); }
    else return;
    event.preventDefault();
  }

  function openPlayer() {
    if (data.runs.length === 0) return;
    byId("player").hidden = false;
    fill(byId("choose-scene"), played().map((scene) => data.scenes[scene].name));
    listen("choose-scene", "change", chooseScene);
    listen("choose-agent", "change", chooseAgent);
    listen("choose-run", "change", chooseRun);
    listen("play", "click", toggle);
    for (const [id, step] of [["first", -Infinity], ["back", -1], ["forward", 1], ["last", Infinity]]) {
      listen(id, "click", () => { pause(); go(player.episode + step); });
    }
    listen("episode", "input", (event) => { pause(); go(Number(event.target.value) - 1); });
    listen("numbers", "toggle", () => { if (byId("numbers").open) drawNumbers(); });
    document.addEventListener("keydown", keys);
    listen("drawing", "pointermove", (event) => showTip(point_at(event.target), event.clientX, event.clientY));
    listen("drawing", "pointerleave", () => showTip(null));
    listen("drawing", "focusin", (event) => {
      const box = event.target.getBoundingClientRect();
      if (event.target.matches(":focus-visible")) showTip(point_at(event.target), box.right, box.bottom);
    });
    listen("drawing", "focusout", () => showTip(null));
    chooseScene();
  }

  function repaint() {
    drawPlots();
    if (player.run === null) return;
    drawLegend(player.stage.scene);
    drawRoutes();
  }

  fill(byId("choose-problem"), curves.problems.map((problem) => problem.problem));
  listen("choose-problem", "change", chooseProblem);
  listen("choose-panel", "change", drawPlots);
  chooseProblem();
  openPlayer();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  matchMedia("print").addEventListener("change", repaint);
})();
