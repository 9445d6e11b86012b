"""The page in a real Chromium: draw, cancel, reload, two tabs, offline, keys, both languages, a phone's width.

Needs playwright (tools/setup_tests.sh) and Debian's chromium; skipped with a line that says so where they are absent.
Screenshots go to $DANQING_BUILD/page.
"""
import shutil as _shutil
import sqlite3

from harness import *

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    sync_playwright = None
CHROMIUM = _shutil.which("chromium") or _shutil.which("chromium-browser")
MISSING = "playwright is not installed (tools/setup_tests.sh)" if not sync_playwright else "chromium is not installed" if not CHROMIUM else ""


class PageFiles(ServerTest):
    """What must hold of the page without a browser."""

    def test_files_and_words(self):
        import re
        html = self.server.get("/").body.decode()
        for name in re.findall(r'(?:src|href)="(/[^"]+)"', html):
            self.assertEqual(self.server.get(name).status, 200, name)
        words = self.server.get("/js/i18n.js").body.decode()
        english, chinese = words.split("\n  zh: {")
        keys = set(re.findall(r'data-i18n(?:-label)?="(\w+)"', html))
        for key in keys:
            self.assertRegex(english, rf"\b{key}: ")
            self.assertRegex(chinese, rf"\b{key}: ")
        ids = re.findall(r' id="([\w-]+)"', html)
        self.assertEqual(len(ids), len(set(ids)))
        for module in ("compose", "jobs", "gallery", "monitor", "main", "api"):
            text = self.server.get(f"/js/{module}.js").body.decode()
            for used in re.findall(r'\$\("([\w-]+)"\)', text):
                self.assertIn(used, ids, module)
            for word in re.findall(r'\bt\("(\w+)"', text):
                self.assertRegex(chinese, rf"\b{word}: ", module)
            self.assertNotRegex(text, r"https?://(?!www\.w3\.org)")
        for label in re.findall(r'<label[^>]* for="([\w-]+)"', html):
            self.assertIn(label, ids)
        for control in re.findall(r'<(?:input|textarea|select)[^>]*? id="([\w-]+)"', html):
            self.assertTrue(f'for="{control}"' in html or re.search(rf'<label[^>]*>(?:(?!</label>).)*id="{control}"', html, re.S), control)


@unittest.skipIf(MISSING, f"skipped: {MISSING}")
class Page(OwnServerTest):
    def setUp(self):
        super().setUp()
        self.playwright = sync_playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.addCleanup(self.playwright.stop)
        self.addCleanup(self.browser.close)

    def page(self, server, language="en-US", width=1200):
        context = self.browser.new_context(locale=language, viewport={"width": width, "height": 900})
        page = context.new_page()
        page.set_default_timeout(60000)
        self.requests = []
        page.on("request", lambda r: self.requests.append(r.url))
        self.errors = []
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.goto(server.url)
        page.wait_for_function("document.getElementById('model').options.length > 0")
        return page

    def shot(self, page, name):
        directory = pathlib.Path(os.environ.get("DANQING_BUILD", self.dir)) / "page"
        directory.mkdir(exist_ok=True)
        page.screenshot(path=str(directory / f"{name}.png"))

    def draw(self, page, prompt="a red apple", steps=3):
        page.fill("#prompt", prompt)
        page.fill("#steps", str(steps))
        page.press("#prompt", "Control+Enter")

    def test_draw_and_look(self):
        s = self.serve()
        page = self.page(s)
        self.draw(page)
        page.wait_for_selector("#gallery li")
        page.click("#gallery button")
        expect(page.locator("#viewer-prompt")).to_have_text("a red apple")
        self.shot(page, "viewer")
        page.click("#use-again")
        expect(page.locator("#lock")).to_have_attribute("aria-pressed", "true")
        self.assertTrue(all(u.startswith((s.url, "data:", "blob:")) for u in self.requests))
        self.assertEqual(self.errors, [])

    def test_cancel_reload_and_two_tabs(self):
        s = self.serve()
        page = self.page(s)
        self.draw(page, steps=150)
        page.wait_for_selector("#jobs li")
        page.reload()
        page.wait_for_selector("#jobs li")  # the job went on
        other = page.context.new_page()
        other.goto(s.url)
        other.wait_for_selector("#jobs li .cancel")
        self.shot(page, "drawing")
        other.click("#jobs .cancel")
        page.wait_for_selector("#jobs li", state="detached")
        self.assertEqual(s.get("/v1/jobs").json()["data"][0]["status"], "cancelled")

    def test_a_thousand_pictures(self):
        """Tiles come page by page and thumbnails only near the window, however many pictures there are."""
        s = self.serve()
        job = s.finished(s.submit(seed=1))["id"]
        s.stop()
        data = self.dir / "data"
        files = [f for f in data.rglob("*") if f.is_file() and job in str(f)]
        self.assertTrue(files)
        db = sqlite3.connect(data / "jobs.sqlite")
        for i in range(999):
            other = f"job_{i:024x}"
            for table, key in (("jobs", "id"), ("pictures", "job")):
                columns = [c[1] for c in db.execute(f"PRAGMA table_info({table})") if c[1] not in ("seq", "id" if table == "pictures" else "seq")]
                chosen = ", ".join(f"'{other}'" if c == key else c for c in columns)
                db.execute(f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {table} WHERE {key} = ?", (job,))
            for f in files:
                copy = pathlib.Path(str(f).replace(job, other))
                copy.parent.mkdir(parents=True, exist_ok=True)
                os.link(f, copy)
        db.commit()
        db.close()
        s = self.serve()
        page = self.page(s)
        page.wait_for_selector("#gallery li")
        page.wait_for_load_state("networkidle")
        thumbnails = sum("thumb" in u for u in self.requests)
        self.assertLess(thumbnails, 400, "all thumbnails at once")
        page.evaluate("""() => { window.gaps = []; let last = performance.now();
            const tick = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
            requestAnimationFrame(tick); }""")
        end = time.monotonic() + TIMEOUT
        while page.locator("#gallery li").count() < 1000 and time.monotonic() < end:
            page.mouse.wheel(0, 4000)
            page.wait_for_timeout(50)
        self.assertEqual(page.locator("#gallery li").count(), 1000)
        gaps = sorted(page.evaluate("window.gaps"))
        print(f"frames while scrolling over 1000 pictures: median {gaps[len(gaps) // 2]:.0f} ms, 95 % {gaps[len(gaps) * 95 // 100]:.0f} ms")
        page.click("#gallery li:last-child button")
        expect(page.locator("#viewer-prompt")).not_to_be_empty()
        self.assertEqual(self.errors, [])

    # What axe-core's most common rules look for, on the page as it is: names, labels, contrast, order, language.
    RULES = r"""() => {
      const found = [], say = (rule, e) => found.push(rule + ": " + e.outerHTML.slice(0, 120));
      const visible = (e) => e.checkVisibility({checkOpacity: false, checkVisibilityCSS: true});
      const name = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map((i) => i && document.getElementById(i)?.textContent).join("")
        || e.labels && [...e.labels].map((l) => l.textContent).join("") || e.textContent || e.title || [...e.querySelectorAll("img")].map((i) => i.alt).join("")).trim();
      if (!document.documentElement.lang) say("html-has-lang", document.documentElement);
      if (!document.title) say("document-title", document.head);
      for (const e of document.querySelectorAll("button, a[href], input:not([type=hidden]), select, textarea, summary, [role=button]")) if (visible(e) && !name(e)) say("name", e);
      for (const e of document.querySelectorAll("img")) if (!e.hasAttribute("alt")) say("image-alt", e);
      const ids = new Map(); for (const e of document.querySelectorAll("[id]")) { if (ids.has(e.id)) say("duplicate-id", e); ids.set(e.id, e); }
      for (const e of document.querySelectorAll("[aria-controls], [aria-describedby], [aria-labelledby]")) for (const a of ["aria-controls", "aria-describedby", "aria-labelledby"])
        for (const i of (e.getAttribute(a) || "").split(" ").filter(Boolean)) if (!ids.has(i)) say(a, e);
      for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) say("tabindex", e);
      let level = 0; for (const h of document.querySelectorAll("h1, h2, h3, h4")) { if (!visible(h)) continue; const n = Number(h.tagName[1]); if (n > level + 1) say("heading-order", h); level = n; }
      if (document.querySelectorAll("main").length !== 1) say("landmark-one-main", document.body);
      for (const e of document.querySelectorAll("ul, ol")) for (const c of e.children) if (c.tagName !== "LI") say("list", e);
      const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
      const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return canvas.getImageData(0, 0, 1, 1).data; };
      const light = (c) => { const [r, g, b] = [...c].slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
      for (const e of document.querySelectorAll("body *")) {
        if (!visible(e) || e.disabled || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
        const style = getComputedStyle(e), a = light(rgb(style.color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700;
        if (ratio < (large ? 3 : 4.5)) say("color-contrast " + ratio.toFixed(2), e);
      }
      return found;
    }"""

    def test_accessibility(self):
        s = self.serve()
        for scheme in ("light", "dark"):
            page = self.page(s)
            page.emulate_media(color_scheme=scheme)
            self.assertEqual(page.evaluate(self.RULES), [], scheme)
            self.draw(page)
            page.wait_for_selector("#gallery li")
            self.assertEqual(page.evaluate(self.RULES), [], scheme)
            page.click("#gallery button")
            page.wait_for_selector("#viewer[open]")
            self.assertEqual(page.evaluate(self.RULES), [], scheme)
            self.shot(page, f"viewer-{scheme}")
            page.keyboard.press("Escape")
            page.wait_for_selector("#viewer", state="hidden")
        page.evaluate("document.querySelector('main').append(document.createElement('button'))")  # the rules do find things
        self.assertEqual([f.split(":")[0] for f in page.evaluate(self.RULES) if "<button>" in f], ["name"])
        page.reload()
        page.wait_for_selector("#gallery li")
        # Everything can be reached and left by the keyboard.
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        self.assertTrue({"prompt", "draw", "steps", "seed", "model"} <= reached, reached)

    def test_offline(self):
        s = self.serve()
        page = self.page(s)
        s.stop()
        self.draw(page)
        expect(page.locator("#connection")).not_to_be_empty()

    def test_key(self):
        p = subprocess.run([PROGRAM, "serve", "--new-key", "anna"], capture_output=True, text=True, check=True)
        keys = self.dir / "keys"
        keys.write_text(p.stdout)
        s = self.serve("--api-key-file", keys)
        page = self.browser.new_page()
        page.goto(s.url)
        page.wait_for_selector("#key-dialog[open]")
        page.fill("#key", p.stderr.split(": ")[1].strip())
        page.click("#key-save")
        page.wait_for_function("document.getElementById('model').options.length > 0")
        self.draw(page)
        page.wait_for_selector("#gallery img")
        page.wait_for_function("document.querySelector('#gallery img').naturalWidth > 0")

    def test_chinese_on_a_phone(self):
        page = self.page(self.serve(), "zh-CN", 360)
        expect(page.locator("#draw")).to_have_text("绘制")
        self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), 360)
        self.draw(page, "一根大香蕉")
        page.wait_for_selector("#gallery li")
        self.shot(page, "phone-zh")
        page.click("#language")
        expect(page.locator("#draw")).to_have_text("Draw")


if __name__ == "__main__":
    main()
