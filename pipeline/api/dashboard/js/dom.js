// How are pages put together? From elements and text nodes only: nothing that somebody sent is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

// Replace what is inside, unless it is the same already: a selection or a hover is not lost for nothing.
export function put(parent, ...children) {
  const wanted = nodes(children);
  const same = wanted.length === 1 && typeof wanted[0] === "string" && parent.childNodes.length === 1
    && parent.firstChild.nodeType === Node.TEXT_NODE && parent.textContent === wanted[0];
  if (!same) parent.replaceChildren(...wanted);
}

// Bring the children of `parent` into the order of `items`, keeping those that stay.
export function keyed(parent, items, keyOf, make, update) {
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const key = String(keyOf(item));
    let child = before.get(key);
    before.delete(key);
    if (!child) {
      child = make(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
  for (const gone of before.values()) gone.remove();
}

// Calls that come together are answered once, a little later.
export function soon(delayMs, act) {
  let timer = null;
  const ask = () => {
    timer ??= setTimeout(() => {
      timer = null;
      act();
    }, delayMs);
  };
  ask.cancel = () => {
    clearTimeout(timer);
    timer = null;
  };
  return ask;
}
