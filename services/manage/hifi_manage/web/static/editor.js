"use strict";
/** The editor of a pipe: line numbers, keys that are possible at the cursor, and problems at their lines. */
class Editor {
  constructor(schema) {
    this.schema = schema;
    this.text = document.getElementById("text");
    this.lines = document.getElementById("lines");
    this.keys = document.getElementById("keys");
    this.list = document.getElementById("problems");
    this.marked = new Set();
    this.text.addEventListener("input", () => { this.mark([]); this.complete(); });
    this.text.addEventListener("scroll", () => { this.lines.scrollTop = this.text.scrollTop; });
    for (const name of ["keyup", "click", "focus"]) this.text.addEventListener(name, () => this.complete());
    this.text.addEventListener("keydown", (event) => this.key(event));
  }

  get value() { return this.text.value; }

  set value(text) {
    this.text.value = text;
    this.text.setSelectionRange(0, 0);
    this.mark([]);
  }

  /** Ctrl+Space completes the key that was begun, Enter keeps the indentation. Tab leaves the editor, as in any form. */
  key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.complete();
      this.keys.querySelector("button")?.click();
    } else if (event.key === "Enter" && !this.text.readOnly) {
      event.preventDefault();
      const line = this.value.slice(0, this.text.selectionStart).split("\n").at(-1);
      const deeper = /:\s*$/.test(line) ? "  " : "";
      this.insert(`\n${line.match(/^\s*/)[0]}${/^\s*-\s/.test(line) ? "  " : ""}${deeper}`);
    }
  }

  insert(text) {
    this.text.setRangeText(text, this.text.selectionStart, this.text.selectionEnd, "end");
    this.text.dispatchEvent(new Event("input"));
  }

  complete() {
    const found = this.text.readOnly ? [] : completions(this.schema, this.value, this.text.selectionStart);
    this.keys.replaceChildren(...found.map(({ key, description, typed }) => {
      const element = button(key, () => {
        this.text.focus();
        this.insert(`${key.slice(typed.length)}: `);
      });
      element.title = description;
      return element;
    }));
  }

  /** Shows problems, each at its line. */
  mark(problems) {
    this.marked = new Set(problems.map(({ line }) => line));
    this.lines.replaceChildren(...this.value.split("\n").flatMap((_, index) => {
      const number = document.createElement(this.marked.has(index + 1) ? "b" : "span");
      number.textContent = index + 1;
      return [number, "\n"];
    }));
    this.lines.scrollTop = this.text.scrollTop;
    this.list.replaceChildren(...problems.map(({ line, column, where, message }) => {
      const item = document.createElement("li");
      item.append(button(`Line ${line}`, () => this.goTo(line, column)), ` ${where ? `${where}: ` : ""}${message}`);
      return item;
    }));
    this.text.setAttribute("aria-invalid", problems.length > 0);
  }

  goTo(line, column) {
    const at = this.value.split("\n").slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0) + column - 1;
    this.text.focus();
    this.text.setSelectionRange(at, at);
    this.text.scrollTop = Math.max(0, line - 8) * parseFloat(getComputedStyle(this.text).lineHeight);
  }
}
