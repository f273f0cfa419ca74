"use strict";
// The page of one ladder: draws it, steps through it, shows both ends and the selected packet. No library, no network.
const lab = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
function svg(name, attributes = {}, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// ---- what the page holds only once ----
/// A time as people read it: microseconds with three digits behind the point.
function time(ns) {
  return Math.floor(ns / 1000).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f") + "." + String(ns % 1000).padStart(3, "0");
}
function bytesOf(base64) { return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)); }
function hexOf(bytes) { return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(""); }

/// Each step has what is other than before: complete it.
{
  const states = [null, null], requests = [null, null];
  for (const step of lab.steps) {
    step.time = time(step.ns);
    step.effects ??= [];
    if (!step.states) continue;
    step.states.forEach((lines, end) => {
      if (!lines) return;
      states[end] = (states[end] || lab.stateNames.map(() => "")).slice();
      for (const [line, text] of lines) states[end][line] = text;
      if (step.requests && step.requests[end]) requests[end] = step.requests[end];
    });
    const known = step.states.map((lines) => lines !== null);
    step.states = states.map((state, end) => known[end] ? state : null);
    step.requests = requests.map((queues, end) => known[end] ? queues : null);
  }
}

/// A packet taken apart: its bytes in hexadecimal, and its headers with fields, values and what they say.
const views = new Map();
function look(index) {
  if (!views.has(index)) views.set(index, takeApart(...lab.views[index]));
  return views.get(index);
}
function takeApart(layout, base64, payload, own) {
  const shapes = lab.layouts[layout].map((shape) => lab.shapes[shape]);
  let bytes = bytesOf(base64);
  if (payload !== null) {
    let at = 0;
    for (const [name, , fields] of shapes) {
      if (name === "Payload") break;
      for (const [, bits] of fields) at += bits;
    }
    const data = bytesOf(lab.payloads[payload]);
    bytes = Uint8Array.from([...bytes.subarray(0, at / 8), ...data, ...bytes.subarray(at / 8)]);
  }
  let at = 0, id = 0;
  const headers = shapes.map(([header, title, places]) => ({ name: header, title, fields: places.map(([name, bits, form, cover]) => {
    const value = written(bytes, at, bits, form[0]), known = lab.says[`${header}.${name}`] || {};
    const says = own[id++] ?? (form[1] ? written(bytes, at, bits, form[1]) : known[value] ?? known[""] ?? "");
    at += bits;
    return { name, at: at - bits, bits, value, says, cover };
  }) }));
  return { hex: hexOf(bytes), headers };
}

/// A value: decimal, hexadecimal, an address, or so many bytes.
function written(bytes, at, bits, form) {
  if (form === "b") return `${bits / 8} B`;
  const first = at >> 3, end = (at + bits + 7) >> 3;
  if (end > bytes.length) return "cut off";
  const octets = hexOf(bytes.subarray(first, end));
  if (form === "a") return lab.addresses[octets] ?? "";
  const value = BigInt.asUintN(bits, BigInt("0x" + octets) >> BigInt(end * 8 - at - bits));
  return form === "x" ? "0x" + value.toString(16).padStart(Math.ceil(bits / 4), "0") : value.toString();
}

// ---- the steps that belong to a packet ----
lab.packets.forEach((packet) => { packet.arrivals = []; });
lab.steps.forEach((step, index) => {
  if (step.kind === "sent" || step.kind === "captured") lab.packets[step.packet].sentAt = index;
  if (step.kind === "arrived") lab.packets[step.packet].arrivals.push(index);
});
const noted = lab.steps.map((step, index) => (step.note ? index : -1)).filter((index) => index >= 0);

// ---- the ladder ----
const LINE = 17, ROW = 29, GAP = 30, GAP_NS = 100000, TOP = 62;
// The column of times is as wide as the longest of them.
const TIME = Math.max(76, 4 + 7.3 * Math.max(...lab.steps.map((step) => step.time.length)));
let shapes = [];

/// Room beside the rail of an end: for its address, which stands over the rail, and for the longest of what stands beside it. A, which
/// mostly posts the work, needs more.
function side(end, width) {
  const words = Math.max(0, ...lab.steps.filter((step) => step.end === end).flatMap(beside).map(([text]) => text.length));
  return Math.max(where(end).length * 7.3 / 2, Math.min(words * 7.55 + 36, 300, Math.max(end ? 202 : 226, width * 0.235)));
}
function where(end) {
  const { address, qpn } = lab.ends[end];
  return address + (qpn ? "  QP " + qpn : "");
}

function layout(width, paper) {
  // Columns: time, what happens at A, the wire, what happens at B. On small screens the wire may have too little.
  const wide = [TIME + 10 + side(0, width), width - side(1, width)];
  const narrow = !paper && (width < 600 || width < 720 && wide[1] - wide[0] < 320);
  const [left, right] = narrow ? [14, width - 14] : wide;
  const rooms = (narrow ? [right - left - 16, right - left - 16] : [left - TIME - 44, width - right - 16]).map((room) => Math.floor(room / 7.55));
  return { narrow, left, right, rooms };
}

/// What stands beside a step: its own text, then its effects.
function beside(step) {
  const lines = [];
  if (step.text) lines.push([step.text, step.kind === "timer" ? "k-timer" : ""]);
  if (step.kind === "arrived") lines.push([`#${number(step.packet)}${step.copy ? " copy" : ""} arrives`, "dim"]);
  for (const effect of step.effects) lines.push([effect.text, "k-" + effect.kind]);
  return lines;
}

/// Words in lines that fit `room` characters. A number keeps its unit.
function wrap(lines, room) {
  const out = [];
  for (const [text, kind] of lines) {
    let line = "";
    for (const word of text.split(/ (?!(?:B|ns|µs|ms|s)(?: |$))/)) {
      if (line && line.length + 1 + word.length > room) { out.push([line, kind]); line = "  " + word; }
      else line = line ? line + " " + word : word;
    }
    out.push([line, kind]);
  }
  return out;
}

/// Where each step stands, where time is left out, and where it ends.
function place(at) {
  const gaps = [];
  let y = TOP;
  const rows = lab.steps.map((step, index) => {
    const before = index ? lab.steps[index - 1].ns : step.ns;
    if (step.ns - before >= GAP_NS) { gaps.push({ top: y, ns: step.ns - before, index }); y += GAP; }
    const lines = wrap(beside(step), at.rooms[step.end]);
    const isPacket = step.kind === "sent" || step.kind === "captured";
    const height = at.narrow ? (isPacket ? ROW : 0) + Math.max(lines.length * LINE, isPacket ? 0 : ROW - LINE + lines.length * LINE)
      : Math.max(ROW, lines.length * LINE + (ROW - LINE));
    const row = { top: y, y: y + ROW / 2 + 2, height, lines, step, index };
    y += height;
    return row;
  });
  return { rows, gaps, bottom: y + 14 };
}

/// Names and addresses over the rails.
function heads(parent, at, width) {
  lab.ends.forEach((end, index) => {
    const x = at.narrow ? (index ? width - 2 : 2) : (index ? at.right : at.left), anchor = at.narrow ? (index ? "end" : "start") : "middle";
    parent.append(svg("text", { x, y: 20, "text-anchor": anchor, class: "head" }, end.name));
    parent.append(svg("text", { x, y: 38, "text-anchor": anchor, class: "sub" }, at.narrow ? end.address : where(index)));
  });
  if (!at.narrow) parent.append(svg("text", { x: TIME, y: 38, "text-anchor": "end", class: "sub" }, "µs"));
}

/// Both rails from one height to another, dotted where time is left out.
function rails(parent, at, from, to, broken) {
  for (const x of [at.left, at.right]) parent.append(svg("line", { x1: x, x2: x, y1: from, y2: to, class: broken ? "rail broken" : "rail" }));
}
function passes(parent, at, { top, ns }) {
  rails(parent, at, top, top + GAP, true);
  const g = svg("g", { class: "gap" });
  g.append(svg("text", { x: (at.left + at.right) / 2, y: top + GAP / 2 + 4, "text-anchor": "middle" }, `${span(ns)} pass`));
  parent.append(g);
}

function draw() {
  const root = $("ladder"), width = root.parentElement.clientWidth, at = layout(width), { rows, gaps, bottom } = place(at);
  root.replaceChildren();
  root.setAttribute("viewBox", `0 0 ${width} ${bottom}`);
  root.setAttribute("height", bottom);
  root.setAttribute("aria-label", `${lab.title}: ${lab.packets.length} packets, ${lab.steps.length} steps`);

  const bands = svg("g"), lines = svg("g"), texts = svg("g");
  root.append(bands, lines, texts);
  heads(texts, at, width);
  let from = TOP - 12;
  for (const gap of gaps) {
    rails(lines, at, from, gap.top);
    passes(lines, at, gap);
    from = gap.top + GAP;
  }
  rails(lines, at, from, bottom - 4);
  shapes = lab.packets.map((packet, index) => arrows(lines, rows, packet, at));
  for (const row of rows) drawRow(bands, texts, row, at, width);
  show();
}

/// In another width, also that of a window whose scroll bar has come: the step of now stays where it is seen.
function redraw() {
  if ($("ladder").parentElement.clientWidth === $("ladder").viewBox.baseVal.width) return;
  const top = () => document.querySelector("#ladder .row.now").getBoundingClientRect().top, before = top();
  draw();
  if (before >= 0 && before < innerHeight) scrollBy(0, top() - before);
}

// ---- on paper ----
/// As wide as the longest label needs, so far as it stays readable.
function paperWidth() {
  const text = (packet, index) => `#${number(index)} ${packet.name}${psn(packet)} ${packet.rest || ""}${packet.again ? " again" : ""} corrupted`;
  const need = Math.max(260, 7.55 * Math.max(0, ...lab.packets.map((packet, index) => text(packet, index).length)));
  const at = layout(720, true);
  return Math.min(1000, Math.max(720, 720 + need - (at.right - at.left)));
}

/// The ladder row by row, so that no page ends inside one, under a heading that each page repeats.
function paper() {
  if ($("paper").children.length) return;
  const width = paperWidth(), at = layout(width, true), { rows, gaps, bottom } = place(at);
  const slice = (top, end) => svg("svg", { class: "drawn", viewBox: `0 ${top} ${width} ${end - top}` });
  const head = slice(0, TOP - 12), body = el("tbody");
  heads(head, at, width);
  const flights = lab.packets.flatMap((packet) => arrows(svg("g"), rows, packet, at));
  let top = TOP - 12;
  for (const row of rows) {
    const last = row.index === rows.length - 1, end = last ? bottom : row.top + row.height, part = slice(top, end);
    const gap = gaps.find(({ index }) => index === row.index), lines = svg("g");
    rails(lines, at, top, gap ? gap.top : end);
    if (gap) { passes(lines, at, gap); rails(lines, at, gap.top + GAP, end); }
    for (const { g, top: from, bottom: to } of flights) if (from <= end && to >= top) lines.append(g.cloneNode(true));
    part.append(lines);
    drawRow(svg("g"), part, row, at, width);
    body.append(el("tr", {}, el("td", {}, part)));
    top = end;
  }
  $("paper").append(el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, head))), body));
}

function span(ns) {
  return ns >= 1e9 ? `${(ns / 1e9).toFixed(2)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${Math.round(ns / 1000)} µs`;
}

/// The lines of one packet: one to each arrival, or a stump to where it is lost.
function arrows(parent, rows, packet, at) {
  const from = packet.from ? at.right : at.left, to = packet.from ? at.left : at.right;
  const start = rows[packet.sentAt].y, group = [];
  const kind = `e${packet.from}${packet.nak ? " nak" : ""}${["lost", "corrupted"].includes(packet.fate) ? " harmed" : ""}`;
  const one = (x2, y2, step, lost) => {
    const g = svg("g", { class: `packet ${kind}${lost ? " lost" : ""}` });
    g.append(svg("line", { x1: from, y1: start, x2, y2, class: "line" }));
    if (lost) {
      g.append(svg("path", { d: `M${x2 - 7} ${y2 - 7}L${x2 + 7} ${y2 + 7}M${x2 + 7} ${y2 - 7}L${x2 - 7} ${y2 + 7}`, class: "line", style: "stroke-dasharray:none;stroke-width:2.5" }));
    } else {
      const angle = Math.atan2(y2 - start, x2 - from) * 180 / Math.PI;
      g.append(svg("path", { d: "M0 0L-11 -4.5L-11 4.5Z", transform: `translate(${x2} ${y2}) rotate(${angle})`, class: "arrowhead" }));
    }
    if (packet.fate === "corrupted") {
      const mx = (from + x2) / 2, my = (start + y2) / 2;
      g.append(svg("path", { d: `M${mx - 9} ${my + 4}l5 -10l4 14l5 -10`, class: "line", style: "stroke-width:2.4" }));
    }
    parent.append(g);
    group.push({ g, from: packet.sentAt, to: step, top: start - 14, bottom: y2 + 14 });
  };
  if (packet.fate === "captured") one(to, start, packet.sentAt, false);
  packet.arrivals.forEach((step) => one(to, rows[step].y, step, false));
  if (packet.fate === "lost") one(from + (to - from) * 0.72, start + ROW * 0.95, packet.sentAt, true);
  return group;
}

function drawRow(bands, texts, row, at, width) {
  const { step, index } = row, right = step.end === 1, x = right ? at.right : at.left;
  const band = svg("g", { class: "row", "data-step": index });
  band.append(svg("rect", { x: 0, y: row.top + 1, width, height: row.height - 2, class: "band" }));
  bands.append(band);
  const g = svg("g", { class: `row e${step.end}`, "data-step": index });
  if (!at.narrow) g.append(svg("text", { x: TIME, y: row.y + 4, "text-anchor": "end", class: "time" }, step.time));
  if (step.kind === "sent" || step.kind === "captured") label(g, row, at);
  g.append(svg("circle", { cx: x, cy: row.y, r: step.kind === "call" || step.kind === "timer" ? 5.5 : 4, class: "dot" }));
  const inside = at.narrow, anchor = right === inside ? "end" : "start";
  const tx = inside ? (right ? x - 10 : x + 10) : (right ? x + 14 : x - 14);
  const down = inside && (step.kind === "sent" || step.kind === "captured") ? ROW - 6 : 0;
  row.lines.forEach(([text, kind], n) => {
    g.append(svg("text", { x: tx, y: row.y + 4 + down + n * LINE, "text-anchor": inside ? anchor : (right ? "start" : "end"), class: `beside ${kind}`, "xml:space": "preserve" }, text));
  });
  if (step.note) {
    // Opposite to the label of a packet, which may be the other end's.
    const labelled = step.packet !== undefined && step.kind !== "arrived" ? lab.packets[step.packet].from === 1 : right;
    const n = noted.indexOf(index) + 1, bx = at.narrow ? (labelled ? at.left + 24 : at.right - 24) : TIME + 15;
    const badge = svg("g", { class: "badge" });
    badge.append(svg("circle", { cx: bx, cy: row.y, r: 8 }), svg("text", { x: bx, y: row.y + 3.5, "text-anchor": "middle" }, n));
    g.append(badge);
  }
  texts.append(g);
  for (const part of [band, g]) part.addEventListener("click", () => go(index));
}

/// In the file that it comes from, so that it is found there, or from 1 on.
function number(packet) { return lab.packets[packet].frame ?? packet + 1; }

/// A malformed packet has none.
function psn(packet) { return packet.psn === undefined ? "" : ` PSN ${packet.psn}`; }

/// What a packet is called, at the rail it leaves.
function label(g, row, at) {
  const packet = lab.packets[row.step.packet], right = packet.from === 1;
  const text = svg("text", {
    x: right ? at.right - 12 : at.left + 12, y: row.y - (row.step.kind === "captured" ? 6 : 4), "text-anchor": right ? "end" : "start",
    class: `label${packet.nak ? " nak" : ""}`, "xml:space": "preserve",
  });
  const bits = [[`#${number(row.step.packet)} `, "no"], [packet.name, "op"], [psn(packet), ""]];
  if (packet.rest) bits.push([" " + packet.rest, "dim"]);
  if (packet.again) bits.push([" again", "tag"]);
  if (packet.fate === "lost" || packet.fate === "corrupted") bits.push([" " + packet.fate, "harm"]);
  if (packet.fate === "doubled") bits.push([" doubled", "tag"]);
  // What went wrong speaks of frames.
  if (at.narrow && !packet.frame) bits.splice(0, 1);
  for (const [words, kind] of bits) text.append(svg("tspan", { class: kind }, words));
  // No line of another packet runs between the letters.
  const wide = bits.reduce((sum, [words]) => sum + words.length, 0) * 7.55, x = right ? at.right - 12 - wide : at.left + 12;
  g.append(svg("rect", { x: x - 2, y: text.getAttribute("y") - 9.5, width: wide + 3, height: 12, class: "under" }), text);
}

// ---- stepping ----
let now = 0;

function go(index, scroll = true) {
  now = Math.max(0, Math.min(lab.steps.length - 1, index));
  show();
  try { history.replaceState(null, "", "#" + (now + 1)); } catch { /* some viewers allow none */ }
  if (scroll) bringInSight();
}

/// The step that a fragment names, if it names one.
function named() {
  return /^#\d+$/.test(location.hash) ? Math.max(0, Math.min(lab.steps.length, Number(location.hash.slice(1))) - 1) : undefined;
}

function bringInSight() {
  const row = document.querySelector(`#ladder .row.now`);
  if (!row) return;
  row.scrollIntoView({ block: "nearest", behavior: "instant" });
  // The bar covers the top of the page.
  const box = row.getBoundingClientRect(), bar = document.querySelector(".bar").getBoundingClientRect();
  if (box.top < bar.bottom + 12) scrollBy(0, box.top - bar.bottom - 60);
  else if (box.bottom > innerHeight - 60) scrollBy(0, box.bottom - innerHeight + 120);
}

function show() {
  const step = lab.steps[now];
  for (const row of document.querySelectorAll("#ladder .row")) {
    const index = Number(row.dataset.step);
    row.classList.toggle("now", index === now);
    row.classList.toggle("later", index > now);
  }
  shapes.forEach((group, index) => group.forEach(({ g, from, to }) => {
    g.classList.toggle("later", from > now);
    g.classList.toggle("flying", from <= now && to > now);
    g.classList.toggle("picked", index === step.packet);
  }));
  $("count").textContent = `step ${now + 1} of ${lab.steps.length}`;
  $("what").textContent = `${step.time} µs  ${lab.ends[step.end].name}: ${headline(step)}`;
  $("first").disabled = $("back").disabled = now === 0;
  $("last").disabled = $("next").disabled = now === lab.steps.length - 1;
  $("note").textContent = step.note || "";
  for (const item of $("notelist").children) item.classList.toggle("now", Number(item.dataset.step) === now);
  states(step);
  requests(step);
  showPacket(step);
}

function headline(step) {
  if (step.text) return step.text;
  const packet = lab.packets[step.packet];
  const verb = { sent: "sends", arrived: step.copy ? "gets a copy of" : "gets", captured: packet.from === step.end ? "sends" : "gets" }[step.kind];
  return `${verb} #${number(step.packet)} ${packet.name}${psn(packet)}`;
}

function states(step) {
  $("states").hidden = $("requests").hidden = !step.states;
  if (!step.states) return;
  const before = (now && lab.steps[now - 1].states) || step.states;
  const known = [0, 1].filter((end) => step.states[end]);
  $("statesof").textContent = known.length === 2 ? "Both ends after this step" : `${lab.ends[known[0]].name} after this step`;
  [0, 1].forEach((end) => { $("end" + end).hidden = !known.includes(end); });
  let section = "";
  $("lines").replaceChildren();
  lab.stateNames.forEach(([belongs, name, about], line) => {
    if (lab.steps.every((s) => !s.states || s.states.every((state) => !state || !state[line]))) return;
    if (belongs && belongs !== section) {
      section = belongs;
      $("lines").append(el("tr", { class: "section" }, el("td", { colspan: 3 }, belongs)));
    }
    const row = el("tr", {}, el("td", { title: about }, name));
    known.forEach((end) => {
      const text = step.states[end][line], changed = before[end] && before[end][line] !== text;
      row.append(el("td", { class: changed ? "changed" : `in${end}` }, text || "–"));
    });
    $("lines").append(row);
  });
}

function requests(step) {
  if (!step.requests) return;
  const before = (now && lab.steps[now - 1].requests) || step.requests;
  $("queues").replaceChildren();
  step.requests.forEach((queues, end) => (queues || []).forEach((queue, which) => {
    if (!queue.length) return;
    const body = el("tbody");
    queue.forEach(([id, op, len, kind, text], n) => {
      const old = before[end] && before[end][which][n];
      const changed = !old || old[4] !== text ? " changed" : "";
      body.append(el("tr", {}, el("td", {}, `${id}`), el("td", {}, op), el("td", {}, `${len} B`), el("td", { class: kind + changed }, text)));
    });
    const title = `${lab.ends[end].name}: ${which ? "receive queue" : "send queue"}`;
    $("queues").append(el("div", { class: "queue" }, el("h3", {}, title), el("table", {}, body)));
  }));
  if (!$("queues").children.length) $("queues").append(el("p", { class: "empty" }, "Nothing was posted yet."));
}

// ---- one packet: fields and bytes ----
let shown = "";

function showPacket(step) {
  $("packet").hidden = step.packet === undefined;
  if (step.packet === undefined) { shown = ""; return; }
  const packet = lab.packets[step.packet];
  const arrived = step.kind === "arrived" && packet.arrived !== undefined, view = look(arrived ? packet.arrived : packet.view);
  const key = `${step.packet} ${arrived}`;
  if (key === shown) return;
  shown = key;
  const other = lab.ends[1 - packet.from].name, bytes = view.hex.length / 2;
  $("packetname").textContent = `#${number(step.packet)} ${packet.name}${psn(packet)}`;
  const fate = { lost: "lost on the way", corrupted: arrived ? "as it arrived: one bit is flipped" : "as it was sent; a bit is flipped on the way", doubled: "doubled on the way" }[packet.fate];
  $("packetfate").replaceChildren(`${lab.ends[packet.from].name} → ${other}, ${bytes} bytes from the IP header on${packet.frame ? `, frame ${packet.frame} of the file` : ""}`, ...(fate ? [" · ", el("b", {}, fate)] : []));
  fields(view);
  hex(view, arrived ? packet.flipped : undefined);
  $("fieldabout").textContent = "";
}

function fields(view) {
  $("fields").replaceChildren();
  let id = 0;
  for (const header of view.headers) {
    const body = el("tbody");
    for (const field of header.fields) {
      const row = el("tr", { class: field.cover, "data-field": id++ },
        el("td", {}, field.name), el("td", {}, field.bits >= 32 && field.bits % 8 === 0 ? `${field.bits / 8} B` : `${field.bits} b`),
        el("td", {}, field.value, ...(field.says ? [el("span", { class: "says" }, field.says)] : [])));
      row.addEventListener("mouseenter", () => light(view, Number(row.dataset.field)));
      row.addEventListener("mouseleave", () => light(view, -1));
      body.append(row);
    }
    $("fields").append(el("table", {}, el("caption", {}, header.name, el("span", {}, header.title)), body));
  }
}

function hex(view, bit) {
  const flat = view.headers.flatMap((header) => header.fields.map((field, n) => ({ ...field, header: header.name, first: n === 0 })));
  const of = (byte) => flat.map((field, id) => [field, id]).filter(([f]) => f.at < byte * 8 + 8 && f.at + f.bits > byte * 8);
  $("bytes").replaceChildren();
  const count = view.hex.length / 2;
  for (let start = 0; start < count; start += 16) {
    const row = el("div", { class: "r" }, el("span", { class: "o" }, start.toString(16).padStart(4, "0")));
    for (let byte = start; byte < Math.min(count, start + 16); byte++) {
      const ids = of(byte), cover = ids.some(([f]) => f.cover === "masked") ? "masked" : ids.length ? ids[0][0].cover : "";
      const begins = ids.some(([f]) => f.first && f.at === byte * 8);
      const flipped = bit !== undefined && bit >> 3 === byte;
      const cell = el("span", { class: `by ${cover}${begins ? " head" : ""}${flipped ? " flipped" : ""}`, "data-byte": byte }, view.hex.slice(byte * 2, byte * 2 + 2));
      cell.addEventListener("mouseenter", () => light(view, ids.map(([, id]) => id), byte));
      cell.addEventListener("mouseleave", () => light(view, -1));
      row.append(cell);
    }
    $("bytes").append(row);
  }
}

/// Lights fields and the bytes they lie in.
function light(view, which, byte) {
  const ids = [which].flat();
  const flat = view.headers.flatMap((header) => header.fields.map((field) => ({ ...field, header: header.name })));
  document.querySelectorAll("#fields tr").forEach((row) => row.classList.toggle("lit", ids.includes(Number(row.dataset.field))));
  const lit = new Set();
  for (const id of ids) {
    if (id < 0) continue;
    const { at, bits } = flat[id];
    for (let b = at >> 3; b <= (at + bits - 1) >> 3; b++) lit.add(b);
  }
  document.querySelectorAll("#bytes .by").forEach((cell) => cell.classList.toggle("lit", byte === undefined ? lit.has(Number(cell.dataset.byte)) : lit.has(Number(cell.dataset.byte))));
  const named = ids.filter((id) => id >= 0).map((id) => flat[id]);
  $("fieldabout").textContent = named.map((f) => `${f.header} ${f.name}: ${lab.glossary[f.header + "." + f.name] || `${f.bits} bits, ${f.cover} by the ICRC.`}`).slice(0, 3).join("  ");
  if (byte !== undefined && named.length) {
    const row = document.querySelector(`#fields tr[data-field="${ids[0]}"]`), box = $("fields");
    if (row && box.scrollHeight > box.clientHeight + 4) row.scrollIntoView({ block: "nearest" });
  }
}

function wire() {
  const dialog = $("wire"), card = $("packet");
  if (dialog.open) { dialog.close(); putBack(); return; }
  if (card.hidden) return;
  $("wirebody").append(...card.childNodes);
  dialog.showModal();
}
function putBack() {
  $("packet").append(...$("wirebody").childNodes);
}
$("wire").addEventListener("close", putBack);

// ---- texts, buttons, keys ----
function begin() {
  $("about").append(...lab.about.map((text) => el("p", {}, text)));
  $("findings").append(...lab.findings.map(([text, index]) => {
    const step = lab.steps[index];
    const item = el("li", step ? { "data-step": index } : {}, text, ...(step ? [el("span", { class: "at" }, ` ${step.time} µs`)] : []));
    if (step) item.addEventListener("click", () => go(index));
    return item;
  }));
  $("wrong").hidden = !lab.findings.length;
  $("look").append(...lab.look.map((text) => el("li", {}, text)));
  $("look").parentElement.hidden = !lab.look.length;
  $("facts").append(...lab.facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
  lab.ends.forEach((end, index) => { $("end" + index).textContent = end.name; });
  $("notelist").append(...noted.map((index) => {
    const step = lab.steps[index];
    const item = el("li", { "data-step": index }, el("span", { class: "at" }, `${step.time} µs ${lab.ends[step.end].name}`), step.note);
    item.addEventListener("click", () => go(index));
    return item;
  }));
  const buttons = { first: () => go(0), back: () => go(now - 1), next: () => go(now + 1), last: () => go(lab.steps.length - 1), theme, print: () => print(), big: wire };
  for (const [id, act] of Object.entries(buttons)) $(id).addEventListener("click", act);
  const keys = {
    ArrowRight: buttons.next, ArrowDown: buttons.next, ArrowLeft: buttons.back, ArrowUp: buttons.back, Home: buttons.first, End: buttons.last,
    n: () => go(noted.find((index) => index > now) ?? now), p: () => go(noted.findLast((index) => index < now) ?? now), t: theme, b: wire,
  };
  addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    if ($("wire").open && event.key.startsWith("Arrow") && event.key.length > 9) return;
    event.preventDefault();
    act();
  });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => { document.documentElement.dataset.theme = dark.matches ? "dark" : "light"; };
  follow();
  dark.addEventListener("change", follow);
  addEventListener("beforeprint", paper);
  addEventListener("afterprint", () => $("paper").replaceChildren());
  new ResizeObserver(redraw).observe($("ladder").parentElement);
  addEventListener("hashchange", () => go(named() ?? 0));
  now = named() ?? 0;
  draw();
  if (named() !== undefined) bringInSight();
  document.documentElement.dataset.ready = "true";
}

function theme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}
begin();
