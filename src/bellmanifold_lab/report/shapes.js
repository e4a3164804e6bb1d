"use strict";
// Arrows and pies, drawn alike by the report's player and the explorer. Both scripts begin with this text.
const SVG = "http://www.w3.org/2000/svg";
const UNIT = 92, RADIUS = 24;

function shape(kind, attributes, parent) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (parent) parent.append(made);
  return made;
}

const rounded = (value) => Math.round(value * 100) / 100;
const point = ([x, y]) => `${rounded(x)} ${rounded(y)}`;

function towards(from, to, length) {
  const [x, y] = [to[0] - from[0], to[1] - from[1]], far = Math.hypot(x, y) || 1;
  return [from[0] + (x / far) * length, from[1] + (y / far) * length];
}

/** Line and head of an arrow, and the position of its name; actions of a state differ in curvature, and in the side of their loops. */
function arrowShape(from, to, order, stays) {
  let begin, one, two, tip;
  if (stays) {
    const far = RADIUS * (2.5 + 0.4 * Math.floor(order / 4)), middle = Math.PI * (1 + order / 2);
    const around = (turn, length) => [from[0] + length * Math.cos(middle + turn), from[1] + length * Math.sin(middle + turn)];
    [begin, one, two, tip] = [around(-0.45, RADIUS), around(-0.5, far), around(0.5, far), around(0.45, RADIUS + 1)];
  } else {
    const [x, y] = [to[0] - from[0], to[1] - from[1]], bend = 0.1 + 0.32 * (1 - 0.65 ** order);
    const middle = [from[0] + x / 2 - y * bend, from[1] + y / 2 + x * bend];
    begin = towards(from, middle, RADIUS);
    tip = towards(to, middle, RADIUS + 1);
    one = [begin[0] + (middle[0] - begin[0]) / 1.5, begin[1] + (middle[1] - begin[1]) / 1.5];
    two = [tip[0] + (middle[0] - tip[0]) / 1.5, tip[1] + (middle[1] - tip[1]) / 1.5];
  }
  const neck = towards(tip, two, 11), side = [(neck[1] - tip[1]) * 0.5, (tip[0] - neck[0]) * 0.5];
  const left = [neck[0] + side[0], neck[1] + side[1]], right = [neck[0] - side[0], neck[1] - side[1]];
  const t = stays ? 0.5 : 0.38, rest = 1 - t;  // names stay near the state they belong to
  const middle = [0, 1].map((k) => rest ** 3 * begin[k] + 3 * rest * t * (rest * one[k] + t * two[k]) + t ** 3 * neck[k]);
  const chord = stays ? from : [rest * begin[0] + t * tip[0], rest * begin[1] + t * tip[1]];
  return { line: `M${point(begin)}C${point(one)} ${point(two)} ${point(neck)}`, head: `M${point(tip)}L${point(left)}L${point(right)}Z`, label: towards(middle, chord, Math.abs(middle[0] - chord[0]) < Math.abs(middle[1] - chord[1]) ? -14 : -9), side: middle[0] - chord[0] };
}

/** An arrow in its own group: the area that reacts to the pointer, a border, the line and, if any, the head. */
function drawArrow({ line, head }, colour, opacity, attributes, parent) {
  const group = shape("g", attributes, parent);
  shape("path", { class: "hit", d: line }, group);
  shape("path", { class: "border", d: line }, group);
  shape("path", { class: "line", d: line, stroke: colour, opacity }, group);
  if (head) shape("path", { class: "head", d: head, fill: colour, opacity }, group);
  return group;
}

/** A state in its own group: a circle, a group for the wedges of its pie, and the rim. */
function drawState([cx, cy], attributes, parent) {
  const group = shape("g", attributes, parent);
  shape("circle", { class: "empty", cx, cy, r: RADIUS }, group);
  const wedges = shape("g", {}, group);
  shape("circle", { class: "rim", cx, cy, r: RADIUS }, group);
  return { group, wedges };
}

/** Fill a pie with wedges; each slice has a share of the total, a colour, and further attributes. */
function fillPie(wedges, place, slices) {
  const total = slices.reduce((sum, [share]) => sum + share, 0);
  let turn = 0;
  wedges.replaceChildren(...(total > 0 ? slices : []).map(([share, fill, attributes]) => {
    const from = turn;
    turn += share / total;
    return shape("path", { d: wedge(place, from, turn), fill, ...attributes });
  }));
}

/** Legend entries: a name each, and the look of the line beside it. Names come from files, so their text direction is isolated. */
function legendEntries(entries) {
  return entries.map(([name, look]) => {
    const span = document.createElement("span"), text = document.createElement("bdi");
    const key = shape("svg", { viewBox: "0 0 36 14", "aria-hidden": "true" }, span);
    shape("path", { d: "M4 7H32", ...look }, key);
    text.textContent = name;
    span.append(text);
    return span;
  });
}

/** A wedge of a pie between two fractions of a turn, counter-clockwise from the top. */
function wedge([x, y], from, to) {
  if (to - from >= 0.99999) return `M${rounded(x)} ${rounded(y - RADIUS)}a${RADIUS} ${RADIUS} 0 1 0 0.01 0Z`;
  const at = (turn) => [x - RADIUS * Math.sin(2 * Math.PI * turn), y - RADIUS * Math.cos(2 * Math.PI * turn)];
  return `M${point([x, y])}L${point(at(from))}A${RADIUS} ${RADIUS} 0 ${to - from > 0.5 ? 1 : 0} 0 ${point(at(to))}Z`;
}
