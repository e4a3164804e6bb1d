// The picture of an exploration, its controls, and its two connections to Python: `render` for a widget in a notebook
// (anywidget), `openPage` for the local page. Names come from files: they are set as text, never as markup.
// The text of report/shapes.js precedes this one.

const NAMED = 60, LEGEND = 8, SMALLEST = 0.36, LARGEST = 1.15, BROAD = 1.7;
const LABEL = { usual: 13, readable: 12.5, largest: 24 };  // sizes of names: in the drawing, minimum in pixels, maximum
const IDLE = 700, MOVES_SHOWN = 7;  // milliseconds before advice is requested; moves of a route that are listed
const SCALES = { low: -1, decades: 4 }, TOLERANCES = { low: -4, decades: 5 }, STEPS = 100;

// ---- small things ----------------------------------------------------------------------------------------------
function element(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const isolated = (text) => element("bdi", { textContent: text });

function amount(value) {
  if (value === null) return "unknown";
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e5)) return value.toExponential(1).replace("-", "−");
  return String(Number(value.toPrecision(3))).replace("-", "−");
}

/** A mean and its standard deviation, both with the digits that the latter justifies; the mean alone if the sd is mere rounding. */
function plusMinus(mean, sd) {
  if (mean === null || sd === null || sd <= 1e-6 * Math.abs(mean)) return amount(mean);
  const digits = 1 - Math.floor(Math.log10(sd));
  const same = (value) => digits < 0 || digits > 4 ? amount(value) : value.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
  return `${same(mean)} ± ${same(sd)}`;
}

/** A probability, with its standard error if that is visible. */
function chance(value, error) {
  if (value === null) return "unknown";
  const digits = error >= 0.005 ? 2 : 3;
  return value.toFixed(digits) + (error >= 0.0005 ? ` ± ${error.toFixed(digits)}` : "");
}

// ---- sliders: the logarithm of a number, the tolerance with an exact 0 at its left end ---------------------------
const clamp = (value) => Math.max(0, Math.min(STEPS, Math.round(value)));
const atScale = (step) => Number((10 ** (SCALES.low + (SCALES.decades * step) / STEPS)).toPrecision(2));
const stepOfScale = (value) => clamp((STEPS * (Math.log10(value) - SCALES.low)) / SCALES.decades);
const atTolerance = (step) => step === 0 ? 0 : Number((10 ** (TOLERANCES.low + (TOLERANCES.decades * (step - 1)) / (STEPS - 1))).toPrecision(2));
const stepOfTolerance = (value) => value === 0 ? 0 : Math.max(1, clamp(1 + ((STEPS - 1) * (Math.log10(value) - TOLERANCES.low)) / TOLERANCES.decades));

// ---- shapes ----------------------------------------------------------------------------------------------------
/** A stub for a move with an unknown law. */
function stubShape(from, order, count) {
  const turn = Math.PI * (0.25 + (2 * order) / Math.max(3, count));
  const at = (length) => [from[0] + length * Math.cos(turn), from[1] + length * Math.sin(turn)];
  return { line: `M${point(at(RADIUS))}L${point(at(RADIUS * 1.9))}`, head: "", label: at(RADIUS * 2.3), side: Math.cos(turn) };
}

// ---- the whole -------------------------------------------------------------------------------------------------
/**
 * Fill `root` with an exploration.
 * board: the fixed part; first: the initial view; post(message): a promise of the view that answers it; stop: a function
 * that interrupts the current computation, null in a notebook, which has its own way.
 * Returns a function that shows a view.
 */
function mount(root, board, first, post, stop) {
  const places = board.places.map(([x, y]) => [x * UNIT, y * UNIT]);
  const goals = board.goals.map(([x, y]) => [x * UNIT, y * UNIT]);
  const goalState = board.states.length;
  const pairsOf = board.states.map(() => []);
  board.pair_state.forEach((state, pair) => pairsOf[state].push(pair));
  const order = board.pair_state.map((state, pair) => pairsOf[state].indexOf(pair));
  const nameOf = (state) => state === goalState ? board.goal : board.states[state];
  const actionOf = (pair) => board.actions[board.pair_action[pair]];
  let view = first, chosenState = board.initial[0] ?? 0, chosenPair = null, waiting = [], busy = false, slow = null, advising = false, idle = null;

  // -- messages: one at a time; waiting changes of options are merged, the latest values count
  async function ask(asked) {
    clearTimeout(idle);
    const before = waiting.find((other) => other.kind === "options");
    if (asked.kind === "options" && before) Object.assign(before, asked);
    else waiting.push(asked);
    if (asked.kind !== "warm") slow ??= setTimeout(() => root.classList.add("busy"), 250);
    if (busy) return;
    busy = true;
    while (waiting.length > 0) {
      const message = waiting.shift();
      try {
        const answer = await post(message);
        show(answer);
        if (answer.file !== undefined) download(answer.file);
        if (answer.error) alerts.scrollIntoView({ block: "nearest" });
      } catch (error) {
        waiting = [];
        show({ ...view, error: error.message, cold: 0 });
      }
      if (message.kind !== "warm") root.dataset.followed = String(Number(root.dataset.followed) + 1);
    }
    busy = false;
    clearTimeout(slow);
    slow = null;
    root.classList.remove("busy");
    if (view.cold > 0) setTimeout(() => ask({ kind: "warm" }), 50);  // compile ahead of time, while idle
    else soonAdvised();
  }

  // -- advice takes longer than pies, which never wait for it: it is requested in parallel to other messages. On the page, where it is
  // also computed in parallel, it is requested automatically after a pause, unless the problem is large
  function soonAdvised() {
    clearTimeout(idle);
    if (stop && board.quick && view.advice === null && !advising) idle = setTimeout(askAdvice, IDLE);
  }

  async function askAdvice() {
    advising = true;
    drawAdvice();
    try {
      const answer = await post({ kind: "advise" });
      if (answer.step === view.step) view = { ...view, advice: answer.advice };
    } catch {
      // the next message will report that there is no answer
    }
    advising = false;
    drawAdvice();
    if (!busy) soonAdvised();
  }

  function download(text) {
    const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: "data.json" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // -- rewards in the sign and the words of the problem: one in costs shows and takes costs
  const word = (inRewards, inCosts) => board.costs === null ? inRewards : inCosts;
  const worth = (reward) => reward === null ? null : word(reward, 0 - reward);

  // -- the parts
  const alerts = element("div", { className: "alerts" });
  const svg = shape("svg", { role: "img", "aria-label": `The problem ${board.name}: a pie per state. The lists beside it have the same content.` });
  const legend = element("figcaption", { className: "legend" });
  const states = element("select", { onchange: () => choose(Number(states.value), null) });
  states.append(...board.states.map((name, state) => element("option", { value: String(state), textContent: name })));
  const moves = element("div", { className: "moves", role: "group", ariaLabel: "moves of this state" });
  const hint = element("p", { className: "hint", textContent: "Click a move in the picture or in this list, and enter its " + word("reward", "cost") + " or your belief about it: the pies will change." });
  const form = element("form", { onsubmit: submit, noValidate: true });
  const number = (label, more) => element("input", { type: "number", step: "any", ariaLabel: label, className: "number", ...more });
  const reward = number(word("what it paid", "what it cost")), mean = number("mean of the belief"), sd = number("standard deviation of the belief", { min: "0" });
  const next = element("select", { ariaLabel: "where it led" }, element("option", { value: "", textContent: "not recorded" }),
    element("option", { value: String(goalState), textContent: board.goal }),
    ...board.states.map((name, state) => element("option", { value: String(state), textContent: name })));
  const led = element("label", {}, "and led to ", next);
  const added = element("button", { type: "submit", textContent: "add observation", className: "add" });
  const believed = element("button", { type: "button", textContent: "add belief", className: "add", onclick: believe });
  const observations = element("ol", { className: "observations" });
  const count = element("span");
  const undo = element("button", { type: "button", textContent: "undo", onclick: () => ask({ kind: "undo" }) });
  const save = element("button", { type: "button", textContent: "save data file", onclick: () => ask({ kind: "save" }) });
  const sharpen = element("button", { type: "button", textContent: "sharpen", title: "compute until standard errors are at most 0.001", onclick: () => ask({ kind: "sharpen" }) });
  const scale = slider("prior scale", () => ({ prior_scale: atScale(Number(scale.input.value)) }), (step) => amount(atScale(step)));
  const tolerance = slider("epsilon", () => ({ epsilon: atTolerance(Number(tolerance.input.value)) }), (step) => step === 0 ? "0 (exact)" : amount(atTolerance(step)));
  const proper = element("input", { type: "checkbox", onchange: () => ask({ kind: "options", proper_only: proper.checked }) });
  const laws = element("select", { onchange: () => ask({ kind: "options", laws: laws.value }) },
    element("option", { value: "dirichlet", textContent: "learnt from observed landings" }),
    element("option", { value: "deterministic", textContent: "deterministic: always as observed" }));
  const halt = element("button", { type: "button", textContent: "stop", className: "halt", onclick: () => { waiting = []; stop(); } });
  const status = element("p", { className: "status" });
  const advise = element("button", { type: "button", textContent: "ask", title: "what to try next, and what stopping now costs", onclick: askAdvice });
  const advice = element("div", { className: "told-all", ariaLive: "polite" });

  function slider(name, options, say) {
    const said = element("output");
    const input = element("input", { type: "range", min: "0", max: String(STEPS), step: "1", ariaLabel: name });
    input.addEventListener("input", () => {
      said.textContent = say(Number(input.value));
      ask({ kind: "options", ...options() });
    });
    return { input, said, whole: element("label", { className: "slider" }, element("span", { textContent: name }), input, said) };
  }

  form.append(
    element("div", { className: "row" }, element("label", {}, word("I played it; it paid ", "I played it; it cost "), reward), led, added),
    element("div", { className: "row" }, element("label", {}, word("I believe it pays ", "I believe it costs "), mean), element("label", {}, "± ", sd), believed));
  const openLaws = board.open_law.some((open) => open);
  root.replaceChildren(
    element("h2", {}, isolated(board.name)),
    alerts,
    element("div", { className: "stage" },
      element("figure", {}, element("div", { className: "paper", tabIndex: 0, role: "region", ariaLabel: "picture (scrollable)" }, svg), legend),
      element("div", { className: "side" },
        element("section", {}, element("label", { className: "which" }, element("span", { textContent: "state" }), states), moves, hint, form),
        element("section", {}, scale.whole, tolerance.whole,
          element("label", { className: "tick" }, proper, " proper only: leave out policies known to miss the goal"),
          ...(openLaws ? [element("label", { className: "which" }, element("span", { textContent: "open laws" }), laws)] : [])),
        element("section", { className: "advice" }, element("div", { className: "row" }, element("strong", { textContent: "what next?" }), advise), advice),
        element("section", {}, element("div", { className: "row" }, element("strong", {}, count), undo, save), observations))),
    element("div", { className: "foot" }, status, sharpen, ...(stop ? [halt] : [])));

  // -- the picture: arrows below, pies above, drawn once; a view changes what they look like
  const xs = [...places.slice(0, -1), ...goals].map(([x]) => x), ys = [...places.slice(0, -1), ...goals].map(([, y]) => y), room = RADIUS * 2.9, wide = Math.max(room, Math.min(30, board.goal.length) * 4);
  const low = [Math.min(...xs) - wide, Math.min(...ys) - room];
  const size = [Math.max(...xs) + wide - low[0], Math.max(...ys) + room - low[1]];
  root.querySelector(".stage").classList.toggle("broad", size[0] > BROAD * size[1]);
  svg.setAttribute("viewBox", [...low, ...size].map(rounded).join(" "));
  svg.style.minWidth = `${Math.round(size[0] * SMALLEST)}px`;
  svg.style.maxWidth = `${Math.round(size[0] * LARGEST)}px`;
  const fit = () => {  // keep names readable however small the picture is
    const scale = svg.getBoundingClientRect().width / size[0];
    if (scale > 0) svg.style.setProperty("--label", `${rounded(Math.min(LABEL.largest, Math.max(LABEL.usual, LABEL.readable / scale)))}px`);
  };
  new ResizeObserver(fit).observe(svg);
  const [halos, arrows, pies, labels] = ["halos", "arrows", "pies", "labels"].map((name) => shape("g", { class: name }, svg));
  const drawn = board.states.map((name, state) => {
    const [x, y] = places[state];
    const made = drawState(places[state], { class: board.initial.includes(state) ? "state start" : "state", "data-state": state }, pies), { group } = made;
    const starts = board.initial.includes(state) && board.initial.length <= LEGEND, named = !board.grid && board.states.length <= NAMED;
    const words = [...(starts ? ["start"] : []), ...(named && board.short[state] !== "start" ? [board.short[state]] : [])];
    if (words.length > 0) shape("text", { class: starts ? "begins" : "", x, y: y - RADIUS - 6, "text-anchor": "middle" }, group).textContent = words.join(": ");
    shape("title", {}, group);
    group.addEventListener("click", () => choose(state, null));
    return made;
  });
  const fits = board.goal.length <= 7;
  for (const [k, [x, y]] of goals.entries()) {
    shape("circle", { class: "goal", cx: x, cy: y, r: RADIUS }, pies);
    if (fits || k === Math.floor((goals.length - 1) / 2)) shape("text", { x, y: fits ? y + 4 : y + RADIUS + 16, "text-anchor": "middle" }, pies).textContent = board.goal.length > 30 ? board.goal.slice(0, 29) + "…" : board.goal;
  }

  function edges() {
    const found = board.arrows.map(({ pair, target, probability, tip }) => ({ pair, target, probability, tip: [tip[0] * UNIT, tip[1] * UNIT] }));
    for (const [pair, target, probability] of view.landed) found.push({ pair, target, probability, tip: places[target] });
    const shown = new Set(view.landed.map(([pair]) => pair));
    board.open_law.forEach((open, pair) => { if (open && !shown.has(pair)) found.push({ pair, target: null, probability: 1, tip: null }); });
    return found;
  }

  function drawArrows() {
    halos.replaceChildren();
    arrows.replaceChildren();
    labels.replaceChildren();
    const onRoute = new Set(view.route === null ? [] : view.route.pairs), labelled = new Set();
    for (const { pair, target, probability, tip } of edges()) {
      const state = board.pair_state[pair], from = places[state];
      const arrow = tip === null ? stubShape(from, order[pair], pairsOf[state].length) : arrowShape(from, tip, order[pair], target === state);
      const { head, label, side } = arrow;
      if (onRoute.has(pair)) shape("path", { class: "halo", d: arrow.line }, halos);
      const kind = ["arrow", view.tried[pair] ? "" : "untried", pair === chosenPair ? "chosen" : ""].filter(Boolean).join(" ");
      const group = drawArrow(arrow, board.pair_colour[pair], rounded(0.4 + 0.6 * probability), { class: kind, "data-pair": pair }, arrows);
      if (!head) shape("text", { x: label[0], y: label[1] + 4, "text-anchor": "middle" }, group).textContent = "?";
      const end = target === null ? "destination unknown" : `leads to ${nameOf(target)}` + (probability < 1 ? ` with probability ${amount(probability)}` : "");
      shape("title", {}, group).textContent = `${board.states[state]}: ${actionOf(pair)}, ${end}; best with probability ${chance(view.probability[pair], view.se[pair])}`;
      group.addEventListener("click", () => choose(state, pair));
      if (state === chosenState && !labelled.has(pair)) {
        labelled.add(pair);
        const name = actionOf(pair);
        const anchor = Math.abs(side) < 4 ? "middle" : side < 0 ? "end" : "start", [x, y] = head ? label : [label[0] + Math.sign(side) * 8, label[1]];
        shape("text", { class: "move", x, y: y + 4, "text-anchor": anchor }, labels).textContent = name.length > 14 ? name.slice(0, 13) + "…" : name;
      }
    }
  }

  function drawPies() {
    board.states.forEach((name, state) => {
      const own = pairsOf[state], ordered = [...own].sort((a, b) => board.pair_action[a] - board.pair_action[b]), { group, wedges } = drawn[state];
      fillPie(wedges, places[state], ordered.map((pair) => [view.probability[pair] ?? 0, board.pair_colour[pair], { "data-pie": pair }]));
      group.classList.toggle("chosen", state === chosenState);
      group.querySelector("title").textContent = [name, ...own.map((pair) => `${actionOf(pair)}: best with probability ${chance(view.probability[pair], view.se[pair])}`)].join("\n");
    });
  }

  function drawLegend() {
    const entries = board.actions.length <= LEGEND
      ? board.actions.map((name, action) => [name, { stroke: board.pair_colour[board.pair_action.indexOf(action)], "stroke-width": 8 }]) : [];
    entries.push(["not tried yet", { class: "sample", "stroke-width": 2.5, "stroke-dasharray": "1.5 5", "stroke-linecap": "round" }]);
    if (view.route !== null) entries.push([`most probable route, ${chance(view.route.probability, view.route.se)}`, { class: "halo" }]);
    legend.replaceChildren(...legendEntries(entries));
  }

  // -- what next: the most probable routes come with the pies, advice on request
  function drawAdvice() {
    const told = view.advice, parts = [];
    advise.disabled = told !== null || advising;
    if (told === null) parts.push(element("p", { className: "hint", textContent: advising ? "weighing what is known …" : "What is worth a trial, and may I stop?" }));
    else if (told.refused) parts.push(element("p", { className: "hint told", textContent: `no advice: ${told.refused}` }));
    else {
      parts.push(element("p", { className: "told", textContent: told.sentences.join(" ") }));
      if (told.trials.length > 0) parts.push(element("p", { className: "heading", textContent: told.ranked_by }), element("ol", {}, ...told.trials.map(({ pair, gain, se }) => element("li", {},
        element("button", { type: "button", className: "trial", onclick: () => choose(board.pair_state[pair], pair) }, isolated(board.states[board.pair_state[pair]]), ": ", isolated(actionOf(pair))),
        element("span", { className: "much", textContent: plusMinus(gain, se) })))));
    }
    if (view.routes.length > 0) parts.push(element("p", { className: "heading", textContent: "most probable routes" }), element("ol", {}, ...view.routes.map(({ pairs, loop, probability, se }) => element("li", {},
      element("span", { className: "way" }, ...pairs.slice(0, MOVES_SHOWN).flatMap((pair, k) => [...(k > 0 ? [" · "] : []), isolated(actionOf(pair))]), pairs.length > MOVES_SHOWN ? " …" : "", loop ? " (a loop)" : ""),
      element("span", { className: "much", textContent: chance(probability, se) })))));
    advice.replaceChildren(...parts);
  }

  // -- the lists
  function drawMoves() {
    states.value = String(chosenState);
    const focused = moves.contains(document.activeElement) ? document.activeElement.dataset.move : null;
    moves.replaceChildren(...pairsOf[chosenState].map((pair) => {
      const bar = element("span", { className: "bar" }, element("span", { className: "filled" }));
      bar.firstChild.style.width = `${100 * (view.probability[pair] ?? 0)}%`;
      bar.firstChild.style.background = board.pair_colour[pair];
      return element("button", { type: "button", className: pair === chosenPair ? "move chosen" : "move", ariaPressed: String(pair === chosenPair), "data-move": pair, onclick: () => choose(chosenState, pair) },
        element("span", { className: "name" }, isolated(actionOf(pair))), element("span", { className: "chance", textContent: chance(view.probability[pair], view.se[pair]) }), bar,
        element("span", { className: "about", textContent: `${word("value", "cost to the goal")} ${plusMinus(worth(view.q_mean[pair]), view.q_sd[pair])}; ${view.known[pair]}` }));
    }));
    if (focused !== null) moves.querySelector(`[data-move="${focused}"]`)?.focus();
    form.hidden = chosenPair === null;
    hint.hidden = chosenPair !== null;
  }

  function drawObservations() {
    const inside = observations.contains(document.activeElement) ? [...observations.children].findIndex((row) => row.contains(document.activeElement)) : -1;
    count.textContent = view.count === 1 ? "1 observation" : `${view.count} observations`;
    undo.disabled = !view.can_undo;
    save.classList.toggle("unsaved", view.unsaved);
    observations.replaceChildren(...view.observations.map((item) => {
      const pays = item.reward === null ? "" : item.sd ? ` ${word("pays", "costs")} ${amount(worth(item.reward))} ± ${amount(item.sd)}` : ` ${word("paid", "cost")} ${amount(worth(item.reward))}`;
      const text = element("span", {}, isolated(board.states[board.pair_state[item.pair]]), ": ", isolated(actionOf(item.pair)), pays);
      if (item.next !== null) text.append(" → ", isolated(nameOf(item.next)));
      const words = text.textContent;
      return element("li", { value: item.index + 1 }, text, element("button", { type: "button", textContent: "×", title: "remove", ariaLabel: `remove observation ${item.index + 1}: ${words}`, className: "remove", onclick: () => ask({ kind: "remove", index: item.index }) }));
    }));
    if (view.count > view.observations.length) observations.append(element("li", { className: "more", textContent: `and ${view.count - view.observations.length} earlier ones` }));
    if (inside >= 0) (observations.children[Math.min(inside, observations.children.length - 1)]?.querySelector("button") ?? undo).focus();
  }

  function drawControls() {
    const settled = !waiting.some((message) => message.kind === "options");
    scale.input.disabled = view.prior !== "";
    tolerance.input.disabled = view.noise !== "";
    if (settled) {
      if (view.prior === "") scale.input.value = String(stepOfScale(view.prior_scale));
      scale.said.textContent = view.prior || amount(view.prior_scale);
      if (view.epsilon !== null) tolerance.input.value = String(stepOfTolerance(view.epsilon));
      tolerance.said.textContent = view.noise ? "none" : view.epsilon === 0 ? "0 (exact)" : amount(view.epsilon);
      tolerance.whole.title = view.noise;
    }
    proper.checked = view.proper_only;
    laws.value = view.laws;
    const error = view.largest_error === 0 ? "exact" : view.largest_error === null ? "standard errors are not known" : `largest standard error ${amount(view.largest_error)}`;
    status.textContent = `${error}; engine ${view.engine}, ${view.seconds < 0.01 ? "under 0.01" : amount(view.seconds)} s`;
    status.title = view.reason;
    sharpen.disabled = view.sharp || (view.largest_error !== null && view.largest_error <= 0.001);
  }

  function drawAlerts() {
    const lines = [...(view.error ? [["error", view.error]] : []), ...view.warnings.map((text) => ["warning", text])];
    if (!view.trustworthy && view.warnings.length === 0) lines.push(["warning", `not trustworthy: ${view.reason}`]);
    alerts.replaceChildren(...lines.map(([kind, text]) => element("p", { className: kind, role: kind === "error" ? "alert" : "status" }, element("strong", { textContent: kind === "error" ? "not done: " : "warning: " }), text)));
  }

  function show(latest) {
    view = latest;
    root.classList.toggle("untrusted", !view.trustworthy);
    drawAlerts();
    drawArrows();
    drawPies();
    drawLegend();
    drawMoves();
    drawObservations();
    drawControls();
    drawAdvice();
  }

  function choose(state, pair) {
    chosenState = state;
    chosenPair = pair;
    if (pair !== null) {
      for (const input of [reward, mean, sd]) input.value = "";
      next.value = "";
      reward.placeholder = board.reward[pair] === null ? "" : String(Number(worth(board.reward[pair]).toPrecision(6)));
      reward.title = board.reward[pair] === null ? "the problem does not state it" : `if empty: the problem's ${word("reward", "cost")}`;
      led.hidden = !board.open_law[pair];
    }
    drawArrows();
    drawPies();
    drawMoves();
    if (pair !== null) reward.focus({ preventScroll: true });
  }

  const given = (input) => input.value === "" ? null : Number(input.value);

  function submit(event) {
    event.preventDefault();
    if (form.querySelector(":focus") === mean || form.querySelector(":focus") === sd) believe();
    else ask({ kind: "observe", pair: chosenPair, reward: worth(given(reward)), next: led.hidden || next.value === "" ? null : Number(next.value) });
  }

  function believe() {
    ask({ kind: "believe", pair: chosenPair, mean: worth(given(mean)), sd: given(sd) });
  }

  show(first);
  root.dataset.followed = "0";  // number of messages answered and shown
  ask({ kind: "warm" });
  return show;
}

// ---- in a notebook ---------------------------------------------------------------------------------------------
function render({ model, el }) {
  const root = element("div", { className: "bellmanifold-explore" });
  el.append(root);
  const own = Math.random().toString(36).slice(2), promised = new Map();
  let sent = 0;
  const post = (message) => new Promise((resolve) => {
    const id = `${own}-${++sent}`;
    promised.set(id, resolve);
    model.send({ ...message, id });
  });
  const show = mount(root, model.get("board"), model.get("view"), post, null);
  const changed = () => {
    const view = model.get("view"), resolve = promised.get(view.answers);
    promised.delete(view.answers);
    if (resolve) resolve(view);
    else show(view);
  };
  model.on("change:view", changed);
  return () => model.off("change:view", changed);
}

export default { render };

// ---- on the local page --------------------------------------------------------------------------------------
function openPage(root) {
  const { board, view } = JSON.parse(document.getElementById("bellmanifold-data").textContent);
  mount(root, board, view, async (message) => {
    let answer;
    try {
      answer = await fetch("answer", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(message) });
    } catch {
      throw new Error("the program behind this page has ended: start it again in the terminal");
    }
    if (!answer.ok) throw new Error(`the program behind this page refused: ${await answer.text()}`);
    return answer.json();
  }, () => fetch("stop", { method: "POST" }));
}

const page = document.getElementById("bellmanifold-page");
if (page) openPage(page);
