"use strict";
/** Follows `$ref` in the JSON Schema of a pipe. */
function resolve(root, node) {
  while (node?.$ref) node = node.$ref.split("/").slice(1).reduce((found, part) => found?.[part], root);
  return node ?? {};
}

/** The alternatives of a schema's node, each without `$ref`. */
function alternatives(root, node) {
  const found = resolve(root, node);
  const choices = found.anyOf ?? found.oneOf;
  return choices ? choices.flatMap((choice) => alternatives(root, choice)) : [found];
}

/** The keys above a line of YAML in block style, outermost first; "-" stands for an entry of a list. */
function pathAt(lines, index) {
  const path = [];
  const text = lines[index] ?? "";
  let indent = text.search(/\S/);
  if (indent < 0) indent = text.length;
  const own = text.match(/^(\s*)-\s/);
  if (own) path.unshift("-");
  for (let at = index - 1; at >= 0 && (indent > 0 || path[0] === "-"); at -= 1) {
    const line = lines[at];
    const found = line.match(/^(\s*)(-\s+)?([\w.-]+):(.*)$/);
    if (!found || /^\s*#/.test(line)) continue;
    const [, space, dash = "", key, rest] = found;
    const keyIndent = space.length + dash.length;
    const parent = !rest.trim() || rest.trim().startsWith("#");
    if (dash && keyIndent <= indent && space.length < indent && path[0] !== "-") {
      if (keyIndent < indent && parent) path.unshift(key);
      path.unshift("-");
      indent = space.length;
    } else if (parent && (keyIndent < indent || (path[0] === "-" && keyIndent <= indent && !dash))) {
      path.unshift(key);
      indent = keyIndent;
      if (dash) {
        path.unshift("-");
        indent = space.length;
      }
    }
  }
  return path;
}

/** What may stand at a line: `[{key, description}]`, without the keys that are there already. */
function completions(root, text, position) {
  const lines = text.split("\n");
  const index = text.slice(0, position).split("\n").length - 1;
  let nodes = [root];
  for (const key of pathAt(lines, index)) {
    nodes = nodes.flatMap((node) => alternatives(root, node)).flatMap((node) => {
      if (key === "-") return node.items ? [node.items] : [];
      const next = node.properties?.[key] ?? (typeof node.additionalProperties === "object" ? node.additionalProperties : null);
      return next ? [next] : [];
    });
  }
  const found = new Map();
  const typed = lines[index].slice(0, text.slice(0, position).split("\n").at(-1).length).match(/^\s*(?:-\s+)?([\w.-]*)$/)?.[1];
  if (typed === undefined) return [];
  for (const node of nodes.flatMap((one) => alternatives(root, one))) {
    for (const [key, value] of Object.entries(node.properties ?? {})) {
      if (key.startsWith(typed)) found.set(key, resolve(root, value).description ?? value.description ?? "");
    }
  }
  for (const sibling of siblings(lines, index)) found.delete(sibling);
  return [...found].map(([key, description]) => ({ key, description, typed }));
}

/** Keys of the mapping that the line belongs to, without the line itself. */
function siblings(lines, index) {
  const indentOf = (line) => line.replace("- ", "  ").search(/\S/);
  const own = lines[index].trim() ? indentOf(lines[index]) : lines[index].length;
  const keys = [];
  const scan = (step) => {
    for (let at = index; at >= 0 && at < lines.length; at += step) {
      if (at !== index) {
        if (!lines[at].trim()) continue;
        const indent = indentOf(lines[at]);
        if (indent < own || (step > 0 && /^\s*-\s/.test(lines[at]) && indent === own)) return;
        if (indent === own) keys.push(lines[at].match(/^\s*(?:-\s+)?([\w.-]+):/)?.[1]);
      }
      if (step < 0 && /^\s*-\s/.test(lines[at]) && indentOf(lines[at]) === own) return;
    }
  };
  scan(-1);
  scan(1);
  return keys.filter(Boolean);
}
