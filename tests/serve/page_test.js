// The page of plait serve, driven as its user would.
(async () => {
  const failures = [], wait = ms => new Promise(done => setTimeout(done, ms));
  const check = (condition, text) => { if (!condition) failures.push("FAILED: " + text); return condition; };
  const until = async (condition, text) => {
    for (let i = 0; i < 2000; i++) { if (condition()) return; await wait(5); }
    check(false, text);
  };
  const get = id => document.getElementById(id), set = (id, value) => { get(id).value = value; get(id).dispatchEvent(new Event("change")); };
  const key = (element, name) => element.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true, cancelable: true}));
  const articles = () => [...document.querySelectorAll("article")], idle = () => get("stop").disabled;
  const text = i => { const e = articles()[i] && articles()[i].querySelector(".text"); return e ? e.textContent : ""; };
  const press = (i, label) => [...articles()[i].querySelectorAll("button")].find(b => b.textContent === label).click();
  const narrow = () => check(document.documentElement.scrollWidth <= window.innerWidth, "the page is wider than the window");
  try {
    await until(() => get("model").textContent === "run", "the model's name");
    if (sessionStorage.getItem("again")) {
      check(articles().length === 2 && text(0) === "ki" && text(1) === sessionStorage.getItem("again"), "a reload keeps the chat");
      check(get("seed").value === "1", "a reload keeps the settings");
      narrow();
      get("fresh").click();
      check(articles().length === 0, "a new chat is empty");
    } else {
      get("show").click();
      check(!get("settings").hidden, "settings are shown");
      narrow();
      set("seed", "1"), set("temperature", "1"), set("max_tokens", "60");
      get("input").value = "<img src=x onerror=\"window.bad = 1\"> ba";
      const lengths = new Set();
      new MutationObserver(() => lengths.add(text(1).length)).observe(get("log"), {childList: true, subtree: true});
      key(get("input"), "Enter");
      check(!idle() && get("send").disabled, "it can be stopped while it answers");
      await until(() => idle() && text(1), "an answer");
      check(lengths.size > 2, "the answer comes in pieces: " + [...lengths]);
      check(/^[0-9.]+ tokens\/s$/.test(get("speed").textContent), "the speed: " + get("speed").textContent);
      check(!document.querySelector("main img") && !window.bad && text(0).startsWith("<img"), "texts are not HTML");
      const first = text(1);
      press(1, "Retry");
      await until(() => idle() && text(1), "another answer");
      check(text(1) === first, "the same seed gives the same answer");
      key(get("input"), "ArrowUp");
      const box = articles()[0].querySelector("textarea");
      check(box && document.activeElement === box, "the last message is edited");
      box.value = "ki";
      key(box, "Enter");
      await until(() => idle() && articles().length === 2 && text(0) === "ki" && text(1), "an answer to the edited message");
      set("max_tokens", "1900");
      let stopped = false;
      for (let i = 2; i < 30 && !stopped; i++) {
        set("seed", String(i));
        press(1, "Retry");
        await until(() => text(1) || idle(), "the begin of an answer");
        key(document.body, "Escape");
        await until(idle, "the end of an answer");
        stopped = articles()[1].textContent.includes("Stopped.");
      }
      check(stopped, "Escape stops an answer");
      set("seed", "1");
      sessionStorage.setItem("again", text(1));
      if (!failures.length) { location.reload(); return; }
    }
  } catch (e) { check(false, e.stack); }
  await fetch("/result", {method: "POST", body: failures.map(f => f + "\n").join("")});
})();
