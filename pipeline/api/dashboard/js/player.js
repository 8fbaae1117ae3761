// What came out? A player with captions for each clip, and every file to take away.

import { h, put } from "./dom.js";
import { icon } from "./icons.js";
import { span } from "./time.js";
import { bytes, many } from "./words.js";

const PLAYABLE = ["burnin", "video"];
const HLS = "application/vnd.apple.mpegurl";

export function outputsPart() {
  const stage = h("div", { class: "player" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": "Clips" });
  const files = h("ul", { class: "files" });
  const heading = h("p", {});
  const element = h("section", { class: "card outputs", "aria-label": "Outputs" },
    h("div", { class: "card-head" }, h("h2", {}, "Outputs"), heading), tabs, stage, files);
  let chosen = null;
  let shown = null;
  let outputs = [];

  const fileOf = (output, ending) => output?.files.find((file) => file.key.endsWith(ending));
  const ofClip = (clip, kind) => outputs.find((output) => output.clip === clip && output.kind === kind && output.files.length);

  function clipsToPlay() {
    const videos = outputs.filter((output) => PLAYABLE.includes(output.kind) && fileOf(output, ".mp4"));
    return [...new Set(videos.map((output) => output.clip))];
  }

  function showPlayer() {
    const clips = clipsToPlay();
    if (!clips.includes(chosen)) chosen = clips[0] ?? null;
    put(tabs, clips.length > 1 ? clips.map((clip) => h("button", { class: "tab", "aria-pressed": String(clip === chosen), onclick: () => {
      chosen = clip;
      showPlayer();
    } }, clip)) : null);
    const film = chosen && fileOf(ofClip(chosen, "video") ?? ofClip(chosen, "burnin"), ".mp4");
    const playlists = film ? [] : outputs.filter((output) => output.kind === "master").map((output) => ({ clip: output.clip, file: fileOf(output, ".m3u8") })).filter(({ file }) => file);
    const told = film ? `${film.key} ${ofClip(chosen, "captions") ? "with words" : ""}` : playlists.map(({ file }) => file.key).join();
    if (told === shown) return; // a fresh link to the same file must not stop what is being played
    shown = told;
    put(stage, film ? video(chosen, film) : playlists.length ? onlyHls(playlists) : null);
  }

  // Safari and new Chromiums play a playlist by themselves; others need a library that we do not bring.
  function onlyHls(playlists) {
    const can = document.createElement("video").canPlayType(HLS) !== "";
    return playlists.map(({ clip, file }) => h("div", { class: "only-hls" },
      can ? h("video", { controls: true, preload: "metadata", playsinline: true, src: file.link, "aria-label": `Clip ${clip}` }) : null,
      h("p", {}, can ? `“${clip}” was made as HLS only:` : `“${clip}” was made as HLS only, which this browser cannot play by itself. Open its master playlist in a player that can, such as VLC or Safari: `,
        " ", h("a", { class: "file-link", href: new URL(file.link, location.href).href, type: HLS }, icon("out", 15), "master playlist"), ".")));
  }

  function video(clip, film) {
    const words = fileOf(ofClip(clip, "captions"), ".vtt");
    const picture = ofClip(clip, "thumbnail")?.files[0]?.link;
    const track = words ? h("track", { kind: "captions", label: "Captions", src: words.link, srclang: "en", default: true }) : null;
    return h("video", { controls: true, preload: "metadata", playsinline: true, src: film.link, poster: picture, "aria-label": `Clip ${clip}` }, track);
  }

  function line(output) {
    const seconds = output.facts?.duration_s;
    const facts = [output.kind, output.quality, seconds ? span(seconds) : null].filter(Boolean).join(" · ");
    const links = output.files.map((file) => h("a", { class: "file-link", href: file.link, download: file.key.split("/").pop() },
      icon("download", 15), `${file.key.split(".").pop()} · ${bytes(file.size)}`));
    const refused = output.refused.map((each) => h("p", { class: "row-error" }, `${each.target} refused it: ${each.error_message ?? each.error_code}`));
    return h("li", { class: "file" },
      h("span", { class: "file-name" }, h("strong", {}, output.name), h("span", { class: "row-sub" }, facts)),
      h("span", { class: `pill ${{ completed: "good", failed: "bad" }[output.status] ?? "calm"}` }, output.status),
      h("span", { class: "file-links" }, links.length > 8 ? [...links.slice(0, 6), h("span", { class: "muted" }, `and ${many(links.length - 6, "file")} more`)] : links),
      output.error_code ? h("p", { class: "row-error" }, `${output.error_code}: ${output.error_message ?? ""}`) : null, refused);
  }

  return {
    element,
    update(job) {
      outputs = job.outputs;
      const done = outputs.filter((output) => output.status === "completed").length;
      put(heading, `${done} of ${outputs.length} made`);
      showPlayer();
      put(files, outputs.map(line));
    },
  };
}
