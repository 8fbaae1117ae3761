// Small pictures, drawn with the colour of the text around them.

import { svg } from "./dom.js";

const PATHS = {
  resolve: "M12 4v11m0 0 4-4m-4 4-4-4M5 19h14",
  clip: "M8 8.5 19 17M8 15.5 19 7M6 9.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Zm0 10a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5Z",
  upload: "M12 16V5m0 0 4 4m-4-4L8 9M5 19h14",
  asr: "M12 15a3 3 0 0 0 3-3V7a3 3 0 0 0-6 0v5a3 3 0 0 0 3 3Zm-6-3a6 6 0 0 0 12 0M12 18v3",
  finalize: "m5 13 4 4L19 7",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14Zm5-2 4 4",
  plus: "M12 5v14M5 12h14",
  back: "M15 5l-7 7 7 7",
  out: "M14 5h5v5m0-5-8 8M10 6H6a1 1 0 0 0-1 1v11a1 1 0 0 0 1 1h11a1 1 0 0 0 1-1v-4",
  download: "M12 4v11m0 0 4-4m-4 4-4-4M5 20h14",
  alert: "M12 8v5m0 3.5v.01M12 3 2.5 20h19L12 3Z",
  film: "M4 5h16v14H4zM8 5v14m8-14v14M4 9.7h4m-4 4.6h4m8-4.6h4m-4 4.6h4",
  worker: "M4 5h16v5H4zm0 9h16v5H4zM8 7.5v.01M8 16.5v.01",
  breaker: "M13 3 6 13h5l-1 8 7-10h-5l1-8Z",
  recovery: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  key: "M8.5 19a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9Zm3.2-7.7L20 3m-3.5 3.5 3 3",
  audit: "M7 3h7l4 4v14H7zM14 3v4h4M10 12h5m-5 4h5",
  webhook: "M4 12h5m0 0 2.5-6 3 12L17 12h3",
  ledger: "M6 4h12v17l-3-2-3 2-3-2-3 2V4Zm3 5h6m-6 4h6",
};

export function icon(name, size = 18) {
  return svg("svg", { viewBox: "0 0 24 24", width: size, height: size, class: "icon", "aria-hidden": "true" },
    svg("path", { d: PATHS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.8,
      "stroke-linecap": "round", "stroke-linejoin": "round" }));
}
