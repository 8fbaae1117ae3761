// How is a job submitted by hand? A source by its address, or a file from here, and the pieces that are wanted.

import { post } from "./api.js";
import { field, say, show } from "./dialog.js";
import { h, put } from "./dom.js";
import { isStaff } from "./session.js";
import { shortId } from "./words.js";

export function submitDialog(onDone) {
  const source = h("input", { id: "source", name: "source", type: "text", maxlength: 2000, spellcheck: "false",
    placeholder: isStaff() ? "https://… or a path on the server" : "https://…" });
  const file = h("input", { id: "file", name: "file", type: "file", accept: "video/*" });
  const clips = h("div", { class: "clip-list" });
  const captions = h("input", { id: "captions", type: "checkbox", checked: true });
  const quality = h("select", { id: "quality" }, ["source", "1080p", "720p", "480p", "360p"].map((value) => h("option", { value }, value)));
  const priority = h("select", { id: "priority" }, ["normal", "high", "low"].map((value) => h("option", { value }, value)));
  const error = h("p", { class: "field-error", role: "alert" });
  const send = h("button", { class: "button primary" }, "Submit");
  const box = h("dialog", { class: "dialog wide", "aria-labelledby": "submit-title" },
    h("form", { onsubmit: submit },
      h("h2", { id: "submit-title" }, "New job"),
      field("source", "Source", source), field("file", "or a file from this computer", file),
      h("fieldset", {}, h("legend", {}, "Clips"), clips, h("button", { type: "button", class: "button small", onclick: () => addClip() }, "Add a clip")),
      h("div", { class: "pair" }, field("quality", "Quality", quality), field("priority", "Priority", priority)),
      h("label", { class: "check", for: "captions" }, captions, "Make captions"),
      error,
      h("div", { class: "dialog-acts" }, h("button", { type: "button", class: "button", onclick: () => box.close("no") }, "Not now"), send)));

  function addClip() {
    const n = clips.children.length + 1;
    const line = h("div", { class: "clip-line" },
      h("input", { class: "clip-name", placeholder: `clip${n}`, maxlength: 64, "aria-label": `Name of clip ${n}` }),
      h("input", { class: "clip-start", value: n === 1 ? "0:00" : "", placeholder: "0:00", "aria-label": `Start of clip ${n}`, required: true }),
      h("input", { class: "clip-end", placeholder: "to the end", "aria-label": `End of clip ${n}` }),
      h("button", { type: "button", class: "button small quiet", "aria-label": `Remove clip ${n}`, onclick: () => { if (clips.children.length > 1) line.remove(); } }, "✕"));
    clips.append(line);
  }

  function wanted(address) {
    const pieces = [...clips.children].map((line) => {
      const read = (name) => line.querySelector(`.clip-${name}`).value.trim();
      const clip = { name: read("name"), start: read("start"), end: read("end") };
      return Object.fromEntries(Object.entries(clip).filter(([, value]) => value).map(([name, value]) => [name, seconds(name, value)]));
    });
    return { source: address, clips: pieces, qualities: [quality.value], captions: captions.checked, priority: priority.value };
  }

  async function submit(event) {
    event.preventDefault();
    put(error, "");
    send.disabled = true;
    try {
      let address = source.value.trim();
      if (file.files.length) {
        put(send, "Sending the file …");
        const [chosen] = file.files;
        address = (await post(`/api/sources?name=${encodeURIComponent(chosen.name)}`, undefined, { raw: chosen })).source;
      }
      const made = await post("/api/jobs", wanted(address));
      box.close("yes");
      say(`Job ${shortId(made.id)} is queued.`, "good");
      onDone(made);
    } catch (problem) {
      put(error, problem.message);
    } finally {
      send.disabled = false;
      put(send, "Submit");
    }
  }

  addClip();
  show(box);
  source.focus();
}

const seconds = (name, value) => (name !== "name" && /^\d+(\.\d+)?$/.test(value) ? Number(value) : value);
