"use strict";
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  const form = document.getElementById("filters");
  const gpus = all(".gpu");
  const listed = (element, name) => (element.dataset[name] || "").split("\n").filter(Boolean);
  const words = (text) => text.trim().toLowerCase();

  // What each GPU and segment has is read once: filters run while somebody types.
  const cards = gpus.map((card) => ({
    card,
    node: words(card.dataset.node),
    cluster: card.dataset.cluster,
    board: card.dataset.board,
    changed: card.dataset.changed === "yes",
    profiles: new Set(listed(card, "profiles")),
    states: new Set(listed(card, "states")),
    holders: words(card.dataset.holders || ""),
    segments: all(".seg", card).map((seg) => ({
      seg, profile: seg.dataset.profile, state: seg.dataset.state, holder: words(seg.dataset.holder || ""),
    })),
  }));

  const asked = () => {
    const values = Object.fromEntries(new FormData(form));
    return {
      cluster: values.cluster || "", node: words(values.node || ""), board: values.board || "", profile: values.profile || "",
      state: values.state || "", holder: words(values.holder || ""), changed: Boolean(values.changed),
    };
  };

  const matches = (one, want) =>
    (!want.cluster || one.cluster === want.cluster) && (!want.node || one.node.includes(want.node)) &&
    (!want.board || one.board === want.board) && (!want.profile || one.profiles.has(want.profile)) &&
    (!want.state || one.states.has(want.state)) && (!want.holder || one.holders.includes(want.holder)) &&
    (!want.changed || one.changed);

  const apply = () => {
    const want = asked();
    const filtering = Object.values(want).some(Boolean);
    let shown = 0;
    for (const one of cards) {
      const match = matches(one, want);
      one.card.hidden = !match;
      shown += match ? 1 : 0;
      for (const { seg, profile, state, holder } of match ? one.segments : []) {
        const dim = (want.profile && profile !== want.profile) || (want.state && state !== want.state) ||
          (want.holder && !holder.includes(want.holder));
        seg.classList.toggle("dim", Boolean(dim));
      }
    }
    for (const node of all(".node")) {
      const left = all(".gpu:not([hidden])", node).length;
      node.hidden = filtering && left === 0;
      if (filtering && left && shown <= 40) node.open = true;
    }
    for (const cluster of all(".cluster")) cluster.hidden = filtering && all(".gpu:not([hidden])", cluster).length === 0;
    document.getElementById("shown").textContent =
      filtering ? `${shown} of ${cards.length} GPUs match.` : `${cards.length} GPUs.`;
    document.getElementById("nothing").hidden = !(filtering && shown === 0);
  };

  const remember = () => {
    const kept = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value) kept.set(name, value);
    try { history.replaceState(null, "", kept.size ? `#${kept}` : location.pathname); } catch (error) { /* Some viewers forbid it. */ }
  };

  const recall = () => {
    for (const [name, value] of new URLSearchParams(location.hash.slice(1))) {
      const field = form.elements.namedItem(name);
      if (!field) continue;
      if (field.type === "checkbox") field.checked = value === "on"; else field.value = value;
    }
  };

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("reset", () => setTimeout(() => {
    for (const field of all("input[type=checkbox]", form)) field.checked = false;
    apply(); remember();
  }));
  const fold = (open) => all(".node:not([hidden])").forEach((node) => { node.open = open; });
  document.getElementById("unfold").addEventListener("click", () => fold(true));
  document.getElementById("fold").addEventListener("click", () => fold(false));

  // A bar is one stop of the Tab key; arrows walk through its segments, and what they are is read out below it.
  const select = (bar, seg) => {
    all(".seg.active", bar).forEach((one) => one.classList.remove("active"));
    if (seg) seg.classList.add("active");
    const reading = bar.parentElement.querySelector(`#${CSS.escape(bar.getAttribute("aria-describedby"))}`);
    reading.textContent = seg ? seg.querySelector("title").textContent : "";
  };
  document.addEventListener("keydown", (event) => {
    const bar = event.target.closest && event.target.closest(".bar");
    if (!bar) return;
    const segments = all(".seg", bar);
    const now = segments.findIndex((seg) => seg.classList.contains("active"));
    const moves = { ArrowRight: Math.min(now + 1, segments.length - 1), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: segments.length - 1 };
    if (event.key === "Escape") select(bar, null);
    else if (event.key in moves) { select(bar, segments[moves[event.key]]); event.preventDefault(); }
  });
  document.addEventListener("focusout", (event) => {
    const bar = event.target.closest && event.target.closest(".bar");
    if (bar) select(bar, null);
  });
  document.addEventListener("click", (event) => {
    const seg = event.target.closest && event.target.closest(".seg");
    if (seg) select(seg.closest(".bar"), seg);
  });

  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach((one) => { one.open = true; });
  });
  window.addEventListener("afterprint", () => folded.forEach((one) => { one.open = false; }));

  recall();
  apply();
})();
