// Where the focus is. What is drawn again keeps it, or the next key would be pressed at the page's beginning.

const CONTROLS = "a[href],button,input,select,summary,[tabindex]";
const controls = (place) => [...place.querySelectorAll(CONTROLS)];

// What a control is known by when it is drawn anew: its own name, else its form's and its own, else where it leads.
const keyOf = (one) => one.dataset.focus ?? (one.form ? `${one.form.getAttribute("aria-label")} ${one.name || one.type}` : one.getAttribute("href"));

// The control of `place` that has the focus; null where none has.
export function held(place) {
  const one = document.activeElement, index = controls(place).indexOf(one);
  return index < 0 ? null : { key: keyOf(one), index, cursor: one.type === "text" ? [one.selectionStart, one.selectionEnd] : null };
}

// Give the focus to the same control, or to what `instead` chooses of all; says whether one has it now.
export function giveBack(place, was, instead = () => null) {
  const all = controls(place), same = was.key === null ? null : all.find((one) => keyOf(one) === was.key);
  const one = same ?? instead(all);
  one?.focus({ preventScroll: true });
  if (same && was.cursor) same.setSelectionRange(...was.cursor);
  return Boolean(one);
}
